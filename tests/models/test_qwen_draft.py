"""The prediction layer of each family: loads beside the main model, and drafts what the float64 oracle says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.checkpoint.spec import flatten
from dgpp.engine.batch import Segment, build
from dgpp.engine.open import Opened, open_model
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.kernels.stored import stored_as
from dgpp.layers.taps import Taps
from dgpp.models.state import Room
from dgpp.world import Single
from tests.models.qwen import MODELS, directory_of, slow_if
from tests.oracles import qwen
from tests.oracles.reading import decoded
from tests.tiny import tokens

LENGTH, PAGE = 40, 16
ROOM = Room(pages=3, page_tokens=PAGE, slots=1, verify_rows=2)
IDS = tokens(LENGTH, seed=3)


@pytest.fixture(scope="module", params=[MODELS[0], *(slow_if(True, made) for made in MODELS[1:])], ids="/".join)
def opened(request: pytest.FixtureRequest) -> Opened:
    settings = CoreSettings(slots=1, pool_tokens=48, page_tokens=PAGE, row_families=(LENGTH,))
    return open_model(str(directory_of(*request.param)), settings, select("reference"), draft=True)


def drafted(opened: Opened, kernels: str, cuts: tuple[int, ...] = ()) -> np.ndarray:
    """The draft's logits for every token but the last, float32 [T - 1, V], fed in pieces."""
    family, c, kind = opened.family, opened.config, select(kernels)
    assert family.draft is not None
    draft = family.draft
    table = np.arange(ROOM.pages, dtype=np.int32)[None]
    found = family.constants(c, PAGE * ROOM.pages, 1)
    constants = {**found.replicated, **{name: array[0] for name, array in found.ranked.items()}}
    constants = jax.tree.map(jnp.asarray, constants)
    last: dict[str, Any] = {"world": Single(), "kernels": kind, "taps": Taps()}
    weights = jax.tree.map(jnp.asarray, opened.weights)

    def zeros(specs: Any) -> dict[str, jax.Array]:
        dtype = kind.stored
        return {
            name: jnp.zeros(spec.allocation(ROOM), dtype if spec.dtype == jnp.bfloat16 else spec.dtype)
            for name, spec in specs.items()
        }

    def step(weights: Any, rows: Any, following: jax.Array, main: Any, own: Any) -> Any:
        with stored_as(kind.stored):
            hidden, main = draft.hidden(c, weights, constants, rows, main, **last)
            if isinstance(hidden, tuple):
                hidden = hidden[0]
            x, _, own = draft.forward(c, weights, hidden, following, constants, rows, own, **last)
            return family.logits(c, weights, x, rows.used, last["world"], kind), main, own

    run = jax.jit(step)
    main, own, out = zeros(family.state(c, 1)), zeros(draft.state(c, 1)), []
    borders = [0, *cuts, LENGTH - 1]
    for start, stop in pairwise(borders):
        segment = Segment(0, start, IDS[start:stop], Phase.PREFILL)
        rows = build([segment], table, LENGTH, 1).rows
        following = np.zeros(LENGTH, np.int32)
        following[: stop - start] = IDS[start + 1 : stop + 1]
        logits, main, own = run(weights, rows, jnp.asarray(following), main, own)
        out.append(np.asarray(logits)[: stop - start])
    return np.concatenate(out)


def test_the_draft_is_the_oracles_in_float32(opened: Opened) -> None:
    read = decoded(opened.tree, opened.checkpoint)
    expected = qwen.draft_logits(opened.checkpoint.config, read, IDS)
    found = drafted(opened, "float32")
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_draft_does_not_depend_on_how_its_rows_are_cut(opened: Opened) -> None:
    whole = drafted(opened, "cpu")
    np.testing.assert_array_equal(drafted(opened, "cpu", cuts=(1, 6, 15, 16, 17, 30)), whole)


def test_the_main_model_alone_does_not_hold_it(opened: Opened) -> None:
    names = {name for _, spec in flatten(opened.tree) for _, name in spec.names()}
    assert any(name.startswith("mtp.") for name in names)
    main = {name for _, spec in flatten(opened.family.abstract(opened.config)) for _, name in spec.names()}
    assert not any(name.startswith("mtp.") for name in main)
