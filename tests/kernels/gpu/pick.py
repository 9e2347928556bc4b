"""What leaves the device for a sampler: the ids in canonical order and the exact normaliser, bit for bit.

    python -m tests.kernels.gpu.pick

In Triton's interpreter with TRITON_INTERPRET=1, else on a CUDA device.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.spec import even_ranges
from dgpp.engine.sampler import Candidates
from dgpp.engine.sampler.normaliser import Normaliser, slice_terms
from dgpp.engine.sampler.prefix import Prefix, scale
from dgpp.kernels.gpu.launch import INTERPRETED
from dgpp.kernels.pick import WIDTH, triton
from dgpp.kernels.pick.triton import likeliest

RNG = np.random.default_rng(3)
LARGEST = np.finfo(np.float32).max


def rows(v: int) -> Iterator[tuple[str, np.ndarray, float]]:
    """(what it is, logits float32 [v], temperature)."""
    yield "logits as a model has them", RNG.standard_normal(v) * 4, 0.7
    yield "many equal ones", RNG.integers(-3, 4, v) / 2, 1.0
    yield "few that are present", np.where(RNG.random(v) < 50 / v, RNG.standard_normal(v), -np.inf), 1.3
    yield "zeros of both signs", np.where(RNG.random(v) < 0.5, 0.0, -0.0), 1.0
    yield "far apart", RNG.standard_normal(v) * 300, 0.33
    yield "one slice is empty", np.where(np.arange(v) < v // 4, -np.inf, RNG.standard_normal(v)), 2.0
    yield "quotients beyond float32", RNG.standard_normal(v) * 1e37, 1e-5
    yield "the largest and the least", RNG.choice([LARGEST, -LARGEST, 1e-45, -np.inf], v), 0.9


def check(v: int) -> None:
    """All kinds of rows of `v` logits at once, and rows without a number beside them."""
    names, logits, temperatures = zip(*rows(v), strict=True)
    values = np.stack(logits).astype(np.float32)
    odd = values[:2].copy()
    odd[0, v // 3], odd[1, v // 2] = np.nan, np.inf
    t = np.array([*temperatures, 1.0, 1.0], np.float32)
    both = jnp.asarray(np.concatenate([values, odd]))
    found = jax.tree.map(np.asarray, jax.jit(lambda x, t: likeliest(x, t, even_ranges(v)))(both, jnp.asarray(t)))
    for row, name in enumerate(names):
        expected = Prefix.of(values[row], WIDTH)
        count = min(WIDTH, found.present[row])
        assert found.present[row] == expected.present, name
        np.testing.assert_array_equal(found.ids[row, :count], expected.ids, err_msg=name)
        np.testing.assert_array_equal(found.logits[row, :count], expected.logits, err_msg=name)
        candidates = Candidates.of(found, row, t[row])
        for part, (start, end) in enumerate(even_ranges(v)):
            cut = values[row, start:end]
            assert found.peaks[row, part] == cut.max(), name
            sums, exact = candidates.partials[part], slice_terms(scale(cut, t[row]))
            shown = exact > 1e-280  # smaller ones are 0 here: they never reach the bits of the whole
            assert sums[: len(exact)][shown].tobytes() == exact[shown].tobytes(), f"{name}, slice {part}"
            assert not sums[len(exact) :].any(), name
        assert candidates.exact == Normaliser(values[row], t[row]).exact, name
    assert np.isnan(found.logits[-2, 0])
    assert found.ids[-2, 0] == v // 3
    assert found.logits[-1, 0] == np.inf
    print(f"{v} ids: {len(names)} kinds of rows, the bits of the host", flush=True)


if __name__ == "__main__":
    if INTERPRETED:  # which takes seconds for a sort of 2048
        triton.SPAN = 256
    for size in (64, 700) if INTERPRETED else (64, 5003, 151936, 248320):
        check(size)
