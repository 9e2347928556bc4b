"""The exactness claims on every tiny Qwen model, and rollback at every place of a verify."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dgpp.engine.core import Core
from dgpp.engine.session import session
from dgpp.engine.settings import CoreSettings
from dgpp.kernels.rows import Phase
from dgpp.lab.claims import FULL, Effort, run_claims
from dgpp.lab.model import Model, load
from tests.models.qwen import LARGE, MODELS, directory_of, slow_if
from tests.tiny import tokens

LAYOUT = {"slots": 3, "pool_tokens": 512, "page_tokens": 16, "row_families": (32,)}
SMALL = Effort(neighbours=5, prompt=21, widths=(2, 4), generated=6, company=3)
CLAIMS = ("rows", "phase", "chunk", "restart", "sample", "lab", "world")
COMPILES = {MODELS[1]: ("restart", "lab", "world"), MODELS[2]: CLAIMS[2:]}
"""The claims that compile a step in several forms, of the models where that takes long."""


@pytest.fixture(scope="module", params=MODELS, ids="/".join)
def model(request: pytest.FixtureRequest) -> Model:
    return load(str(directory_of(*request.param)), **LAYOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "claim"),
    [slow_if(claim in COMPILES.get(made, ()), made, claim) for made in MODELS for claim in CLAIMS],
    indirect=["model"],
    ids=lambda value: value if isinstance(value, str) else "/".join(value),
)
def test_claims(model: Model, claim: str) -> None:
    result = run_claims(model, [claim], effort=SMALL)[0]
    assert result.compared
    assert result.verdict == "equal"


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["phase", "chunk"])
def test_claims_in_full(model: Model, claim: str) -> None:
    result = run_claims(model, [claim], effort=FULL)[0]
    assert result.compared
    assert result.verdict.startswith("equal")


@pytest.mark.parametrize("model", [slow_if(made[0] == LARGE, made) for made in MODELS], indirect=True, ids="/".join)
def test_a_rollback_at_every_place_of_a_verify_leaves_no_trace(model: Model) -> None:
    core, text, width, later = model.core, tokens(40), 4, 9
    with session(core, 0, 48) as plain:
        plain.every(text[:7])
        expected = np.concatenate([plain.last((token,), Phase.DECODE)[None] for token in text[7:]])
    for start in (7, 14, 15, 16, 17):  # also around the border of a page, and at every place of a block of four tokens
        for accepted in range(1, width + 1):
            wrong = tokens(width, seed=100 * start + accepted)
            with session(core, 1, 48) as s:
                s.every(text[:start])
                s.every((*text[start : start + accepted], *wrong[accepted:]), Phase.VERIFY)
                s.rewind(start + accepted)
                found = [s.last((token,), Phase.DECODE) for token in text[s.length : s.length + later]]
            first = start + accepted - 7
            np.testing.assert_array_equal(np.array(found), expected[first : first + later])


def test_verify_after_verify_replays_only_what_was_accepted(model: Model) -> None:
    core, text, wrong = model.core, tokens(40), tokens(40, seed=9)
    with session(core, 0, 48) as plain:
        expected = plain.every(text)
    with session(core, 2, 48) as s:
        s.every(text[:5])
        accepted = [1, 4, 2, 3, 1, 1, 4, 2]
        for count in accepted:
            at = s.length
            group = (*text[at : at + count], *wrong[at + count : at + 4])
            found = s.every(group, Phase.VERIFY)[:count]
            np.testing.assert_array_equal(found, expected[at : at + count])
            s.rewind(at + count)
        at = s.length
        np.testing.assert_array_equal(s.every(text[at:]), expected[at:])


def test_a_segment_that_the_state_cannot_follow_is_refused(model: Model) -> None:
    core, text = model.core, tokens(30)
    with session(core, 0, 48) as s:
        s.every(text[:20])
        s.rewind(12)
        with pytest.raises(ValueError, match="slot 0 can go on at position 20, or start anew at 0, but not at 12"):
            s.last(text[12:13], Phase.DECODE)
        s.length = 20
        s.every(text[20:24], Phase.VERIFY)
        s.rewind(19)
        with pytest.raises(ValueError, match="at position 20 to 24, or start anew at 0, but not at 19"):
            s.last(text[19:20], Phase.DECODE)
        s.rewind(0)
        with pytest.raises(ValueError, match="9 rows to verify; this core has room for 8"):
            s.every(text[:9], Phase.VERIFY)


def test_a_new_owner_of_a_slot_starts_from_nothing(model: Model) -> None:
    core, text = model.core, tokens(20)
    with session(core, 0, 32) as s:
        fresh = s.every(text)
    with session(core, 0, 32) as s:
        s.every(tokens(30, seed=3))
        s.every(tokens(2, seed=4), Phase.VERIFY)
    with session(core, 0, 32) as s:
        np.testing.assert_array_equal(s.every(text), fresh)


def test_a_kept_slot_can_be_put_back(model: Model) -> None:
    core, text = model.core, tokens(30)
    with session(core, 0, 32) as s:
        s.every(text[:10])
        s.every(text[10:13], Phase.VERIFY)
        kept = core.keep(0)
        once = s.every(text[13:])
        core.restore(0, kept)
        s.length = 13
        np.testing.assert_array_equal(s.every(text[13:]), once)


def test_pages_that_hold_no_whole_block_are_refused(model: Model) -> None:
    if "index" not in model.core.state_specs:
        pytest.skip("this model has no index plane")
    config = replace(model.config, indexer_compress_ratio=3, indexer_budget=9)
    with pytest.raises(ValueError, match="pages of 16 tokens do not hold whole entries of 3 tokens"):
        Core(model.family, config, model.weights, CoreSettings(slots=1, pool_tokens=64, page_tokens=16))
