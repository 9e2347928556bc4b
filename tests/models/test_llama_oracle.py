"""The llama forward against its equations in float64, on every BF16 release in miniature and on the embedded model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.lab.goldens.step import ROUNDINGS, judge_logits
from dgpp.lab.model import load
from dgpp.models import FAMILIES
from tests.oracles import llama as oracle
from tests.tiny import tokens

LAYOUT: dict[str, Any] = {"slots": 1, "pool_tokens": 256, "page_tokens": 16, "row_families": (128,)}
"""That of the goldens, whose compiled step is found in the cache when they ran before."""
RELEASES = ("tiny", "tiny-tied", "tiny-9x3", "tiny-llama3-rope", None)


@pytest.mark.parametrize("release", RELEASES)
def test_the_forward_stays_within_its_roundings_of_float64(release: str | None, tmp_path: Path) -> None:
    directory = write_fixture(FAMILIES["llama"], release, tmp_path / "model") if release else None
    m = load(directory and str(directory), **LAYOUT)
    prompt = tokens(60)
    exact = oracle.logits(m.checkpoint.config, m.checkpoint.read, prompt)
    logits = m.forward(prompt, capture="*").logits
    verdict = judge_logits(logits, exact, ROUNDINGS["llama"] * m.config.layers)
    assert verdict.stands, str(verdict)
    assert verdict.error > 1e-4  # the two are not one computation
    rows = np.linalg.norm(logits - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert rows.max() < 2 * verdict.bound
    # Where the two best logits are further apart than what rounding can do to their difference, the best is the same.
    best = np.sort(exact, axis=1)[:, -2:]
    sure = best[:, 1] - best[:, 0] > 6 * (logits - exact).std()
    assert sure.sum() > 10
    assert (logits.argmax(axis=1) == exact.argmax(axis=1))[sure].all()


def test_the_bound_catches_small_mistakes() -> None:
    """What the equations give with one detail wrong lies beyond the bound that the forward keeps."""
    m = load(**LAYOUT)
    config, read, prompt = m.checkpoint.config, m.checkpoint.read, tokens(60)
    exact = oracle.logits(config, read, prompt)

    def judged(**changed: object) -> bool:
        return judge_logits(
            oracle.logits({**config, **changed}, read, prompt), exact, ROUNDINGS["llama"] * m.config.layers
        ).stands

    assert judged()
    assert not judged(rope_theta=9000.0)
    assert not judged(rms_norm_eps=1e-2)
    assert not judged(num_attention_heads=8, num_key_value_heads=4, head_dim=8)
