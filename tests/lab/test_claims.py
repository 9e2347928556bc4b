"""Every claim on a sound tiny model, and on models with a defect that the claim must report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.engine.core import Core, StepResult
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import TokenEvent
from dgpp.engine.session import session
from dgpp.engine.settings import SettingsError
from dgpp.kernels import default
from dgpp.kernels.rows import Phase
from dgpp.kernels.stored import to_bf16
from dgpp.lab.claims import CLAIMS, ClaimResult, Effort, restart, run_claims, world
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.restarted import disturb, last_slot
from dgpp.lab.claims.run import run_claim
from dgpp.lab.claims.subject import Subject, served, spread
from dgpp.lab.model import Model, load
from dgpp.layers.taps import Taps
from dgpp.models import FAMILIES, Family, llama
from tests.lab.conftest import LAYOUT, tiny_model
from tests.tiny import tiny

SMALL = Effort(neighbours=5, prompt=20, widths=(2, 5), generated=6, company=3)
COUNTS = {
    "rows": 2 + 3 + 4 + 5 + 6,
    "phase": 20 + 2 * 2 * 17,
    "chunk": 19 * 20 - 2 * (1 + 2 + 3) + 53 + 53 + 53 + 53 + (3 * 16 + 2),
    "sample": 7 * 3 * 6,
    "lab": 2 * 24,
    "world": 2 * 28,
}
FACTOR = jnp.float32(1 + 2.0**-20)
"""A change in the last bits of float32: far below what any tolerance would see."""
STEP = jnp.float32(1 + 2.0**-8)
"""A change in the last bit of bfloat16, to which the output of attention is rounded."""


def examined(model: Model, name: str, **how: Any) -> ClaimResult:
    return run_claims(model, [name], effort=SMALL, **how)[0]


@pytest.mark.parametrize("name", COUNTS)
def test_the_claims_hold_and_say_how_much_was_compared(sound: Model, embedded: Model, name: str) -> None:
    model = sound if name in ("lab", "world") else embedded
    seen: list[tuple[str, int, int]] = []
    result = run_claims(model, [name], lambda *step: seen.append(step), effort=SMALL)[0]
    assert result == ClaimResult(name, "llama", f"cpu/{default().name}", COUNTS[name], None)
    assert result.verdict == "equal"
    assert seen[-1] == (name, COUNTS[name], COUNTS[name])
    assert model.core.pool.in_use == 0


def test_claims_are_known_by_name(sound: Model) -> None:
    assert list(CLAIMS) == ["rows", "phase", "chunk", "restart", "sample", "lab", "world"]
    with pytest.raises(ValueError, match="unknown claim 'row'; known are rows"):
        run_claims(sound, ["row"])


# --- defects ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counting() -> Model:
    """A linear that adds in another order, so to say, when it has more than two rows."""
    sound = default()

    def linear(x: Any, w: Any, layer: Any, used: Any) -> Any:
        y = sound.linear(x, w, layer, used)
        return jnp.where(used > 2, y * FACTOR, y)

    return tiny_model(replace(sound, linear=linear))


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("rows", "0 rows before it and 2 after: "),
        ("phase", "decoded at position 0: "),
        ("chunk", "20 tokens cut after 1, position 0: "),
    ],
)
def test_bits_that_follow_the_number_of_rows_are_reported(counting: Model, name: str, where: str) -> None:
    result = examined(counting, name)
    assert result.difference is not None
    assert result.difference.startswith(where)
    assert "values differ, first at" in result.difference
    assert result.compared <= 3
    assert counting.core.pool.in_use == 0


def test_a_row_that_depends_on_its_place_is_reported() -> None:
    sound = default()

    def attention(*args: Any, **named: Any) -> Any:
        out, *caches = sound.attention(*args, **named)
        place = jnp.arange(out.shape[0])[:, None, None]
        return jnp.where(place == 3, out * STEP, out), *caches

    result = examined(tiny_model(replace(sound, attention=attention)), "rows")
    assert result.difference is not None
    assert result.difference.startswith("3 rows before it and 0 after: ")
    assert result.compared == 2 + 3 + 4


def test_what_a_rejected_draft_leaves_behind_is_reported(monkeypatch: pytest.MonkeyPatch, sound: Model) -> None:
    """An engine that does not rewind: after a group the next one is written behind the rejected drafts."""
    from dgpp.lab.claims import phase

    behind = 0

    def stuck(core: Any, slot: int, start: int, tokens: Any, kind: Phase, places: Any) -> np.ndarray:
        nonlocal behind
        found = served(core, slot, start + behind, tokens, kind, places)
        behind += kind == Phase.VERIFY and len(tokens) == 5 and tokens[1:] != sound_tokens[start + 1 : start + 5]
        return found

    sound_tokens = Subject(sound).tokens(SMALL.prompt)
    monkeypatch.setattr(phase, "served", stuck)
    result = examined(sound, "phase")
    assert result.difference is not None
    assert result.difference.startswith("verified 5 wide with 2 accepted at position 4: ")


def test_a_chunk_border_that_shows_is_reported() -> None:
    """Attention that loses a bit where a segment begins inside a page."""
    sound = default()

    def attention(*args: Any, **named: Any) -> Any:
        out, *caches = sound.attention(*args, **named)
        first = args[7][0]
        return jnp.where((first % 16 != 0) & (first > 25), out * STEP, out), *caches

    result = examined(tiny_model(replace(sound, attention=attention)), "chunk")
    assert result.difference is not None
    assert result.difference.startswith("53 tokens in pieces of 1, position 26: ")


class DrawsByCompany(LocalEngine):
    """Draws another token when more than one request is sampled in a step."""

    def _choose(self, sampled: Any, result: StepResult) -> Any:
        events = super()._choose(sampled, result)
        if len(sampled) == 1:
            return events
        return [replace(event, token=event.token ^ 1) if isinstance(event, TokenEvent) else event for event in events]


def test_a_draw_that_depends_on_company_is_reported(embedded: Model) -> None:
    result = examined(embedded, "sample", serve=DrawsByCompany)
    assert result.difference is not None
    assert result.difference.startswith("temperature, in company, token ")


def _family(forward: Any) -> Family:
    return replace(tiny("tiny-9x3")[0], forward=forward)


def test_a_capture_that_changes_the_step_is_reported() -> None:
    def forward(c: Any, weights: Any, constants: Any, rows: Any, planes: Any, world: Any, k: Any, taps: Taps) -> Any:
        h, planes = llama.forward(c, weights, constants, rows, planes, world, k, taps)
        return (h * jnp.bfloat16(1.01) if taps.wanted else h), planes

    result = examined(tiny_model(family=_family(forward)), "lab")
    assert result.difference is not None
    assert result.difference.startswith("every activation captured, position 0: ")
    assert result.compared == 24 + 1


def test_a_fold_that_rounds_at_every_rank_is_reported() -> None:
    class Chain:
        def __init__(self, world: Any) -> None:
            self.size, self.world = world.size, world

        def gather(self, x: Any, sizes: Any) -> Any:
            return self.world.gather(x, sizes)

        def leaves(self, own: Any) -> Any:
            q = self.world.leaves(own).astype(jnp.float32)
            chain = q[3] + to_bf16(q[2] + to_bf16(q[1] + q[0]))
            return jnp.stack([chain, *jnp.zeros((3, *chain.shape))])

    def forward(c: Any, weights: Any, constants: Any, rows: Any, planes: Any, world: Any, k: Any, taps: Taps) -> Any:
        world = Chain(world) if world.size == 4 else world
        return llama.forward(c, weights, constants, rows, planes, world, k, taps)

    result = examined(tiny_model(family=_family(forward)), "world")
    assert result.difference is not None
    assert result.difference.startswith("world of 4, read at position ")


def test_a_world_without_devices_is_not_called_equal(sound: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    result = examined(sound, "world")
    assert (result.compared, result.difference) == (0, None)
    assert result.verdict == "nothing could be compared (no world of 2: 1 of 2 devices; no world of 4: 1 of 4 devices)"


def test_a_format_that_cannot_be_cut_is_not_called_equal(sound: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_world(tree: Any, tied: Any, size: int) -> None:
        if size == 4:
            raise SettingsError("q_proj cannot be shared by 4 ranks")

    monkeypatch.setattr(world, "check_world", check_world)
    result = examined(sound, "world")
    assert (result.compared, result.note) == (28, "no world of 4: q_proj cannot be shared by 4 ranks")


@pytest.mark.parametrize("name", [name for name in CLAIMS if name != "restart"])
def test_a_context_that_is_too_short_is_not_called_equal(name: str) -> None:
    result = examined(tiny_model(slots=4, pool_tokens=16, row_families=(16,)), name)
    assert result.compared == 0
    assert "do not fit the context" in result.verdict


def test_a_claim_that_skips_a_case_is_broken(sound: Model) -> None:
    def pairs() -> Iterator[Pair]:
        yield Pair("one", np.zeros(2), np.zeros(2))

    with pytest.raises(AssertionError, match="compared 1 pairs instead of 2"):
        run_claim(Claim("half", lambda s: Plan(2, pairs)), Subject(sound))


# --- restart ----------------------------------------------------------------------------------------------------------


def test_the_second_process_agrees_and_a_difference_to_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = {**LAYOUT, "row_families": (16,)}
    directory = str(write_fixture(FAMILIES["llama"], "tiny", tmp_path / "model"))
    model = load(directory, **layout)
    effort, in_new_process, answers = replace(SMALL, generated=3), restart._in_new_process, []

    def kept(order: dict[str, Any]) -> np.ndarray:
        answers.append(in_new_process(order))
        return answers[-1]

    monkeypatch.setattr(restart, "_in_new_process", kept)
    result = run_claims(model, ["restart"], effort=effort)[0]
    assert (result.compared, result.difference) == (1 + 3, None)

    known = model.core.kernels

    def linear(x: Any, w: Any, layer: Any, used: Any) -> Any:
        return known.linear(x, w, layer, used) * FACTOR

    core = Core(model.family, model.config, model.weights, model.core.settings, replace(known, linear=linear))
    monkeypatch.setattr(restart, "_in_new_process", lambda order: answers[0])
    result = run_claims(replace(model, core=core), ["restart"], effort=effort)[0]
    assert result.difference is not None
    assert result.difference.startswith("row of the prompt, row 0 of 4: ")


def test_a_disturbed_core_has_other_pages_and_still_the_same_bits() -> None:
    model = tiny_model(row_families=(16,))
    prompt = Subject(model).tokens(1)
    with session(model.core, 0, 40) as one:
        pages = model.core.pool.table[0, :3].tolist()
        expected = restart.run(one, prompt, 35)
    disturb(Subject(model, SMALL), 40)
    assert model.core.pool.in_use == 1
    with session(model.core, last_slot(model.core), 40) as one:
        others = model.core.pool.table[one.slot, :3].tolist()
        assert not set(pages) & set(others)
        assert sorted(others) != others or others[0] != pages[0]
        assert restart.run(one, prompt, 35).tobytes() == expected.tobytes()


def test_spread_keeps_the_ends() -> None:
    assert spread(5, 16) == [0, 1, 2, 3, 4]
    assert spread(100, 4) == [0, 33, 66, 99]
    assert len(spread(17, 16)) == 16
