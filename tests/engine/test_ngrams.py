"""A core whose n-gram table stays in its files reads the rows that a resident table gives, however a text is fed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.mapped import MappedTable
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import TensorSpec, flatten
from dgpp.engine import compiles
from dgpp.engine.batch import Segment, picked
from dgpp.engine.core import Core
from dgpp.engine.levers import parted
from dgpp.engine.ngrams import NgramReader
from dgpp.engine.settings import CoreSettings
from dgpp.engine.slots import SlotKeeper
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.layers.ngram import NgramTable, ngram_ids
from dgpp.layers.ple import table_rows
from dgpp.models import FAMILIES

FAMILY = FAMILIES["qwen_flash_next"]
EOS = 2
TEXT = (7, 900, 33, EOS, 33, 33, 1200, EOS, EOS, 5, 2047, 0, 7, 900, 33, 8, 8, 8, 8, 12)
SETTINGS = CoreSettings(slots=2, pool_tokens=96, page_tokens=16, row_families=(8, 16), verify_rows=4)


def rows_alone(c: Any, weights: Any, constants: Any, rows: Any, state: Any, world: Any, kernels: Any, taps: Any) -> Any:
    """A forward that returns what the layer of the table would read."""
    if rows.ngrams is not None:
        return rows.ngrams, state
    ids, state = ngram_ids(c.ngram, constants, rows, state, jnp.int32(0))
    return table_rows(weights["layers"]["ple"], jnp.int32(1), ids, kernels), state


def all_columns(c: Any, weights: Any, hidden: Any, used: Any, world: Any, kernels: Any) -> Any:
    return world.gather(hidden.astype(jnp.float32), [c.ple_embed_dim // 4] * 4)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(config, the table's spec, its checkpoint)."""
    directory: Path = tmp_path_factory.mktemp("ngrams") / "model"
    checkpoint = Checkpoint.open(write_fixture(FAMILY, "tiny", directory))
    config = FAMILY.config(checkpoint.config)
    source = FAMILY.supports.ngram_table
    assert source is not None
    return config, parted(FAMILY.abstract(config), (source.path,))[1], checkpoint


@pytest.fixture(scope="module")
def core_of(opened: Any) -> Any:
    config, tree, checkpoint = opened

    @cache
    def core(mapped: bool, world: int) -> Core:
        table = MappedTable(checkpoint, dict(flatten(tree))["layers.ple.ngram_embedding"]) if mapped else None
        held = {} if mapped else tree
        family = replace(FAMILY, abstract=lambda c: held, forward=rows_alone, logits=all_columns)
        settings = replace(SETTINGS, world=world)
        made = Core(family, config, load_weights(held, checkpoint), settings, select("reference"), ngrams=table)
        made.warm_up()
        for slot in range(settings.slots):
            made.pool.reserve(slot, 48)
        return made

    return core


def fed(core: Core, *segments: tuple[int, int, tuple[int, ...], Phase]) -> bytes:
    """What every row of one step reads."""
    step = core.step([Segment(slot, start, text, phase, range(len(text))) for slot, start, text, phase in segments])
    return np.asarray(step.logits)[: sum(len(segment[2]) for segment in segments)].tobytes()


def history(core: Core) -> list[bytes]:
    """A text cut in pieces, beside another one; verifies of which all, some or one row is accepted; a step back to
    what was kept; a new text in a used slot."""
    out, start = [], 0
    for size in (1, 2, 5, 1, 3):
        piece = TEXT[start : start + size]
        out.append(fed(core, (0, start, piece, Phase.PREFILL), (1, start, piece[::-1], Phase.PREFILL)))
        start += size
    for accepted in (4, 1, 2, 3):
        kept = core.keep(0)
        out.append(fed(core, (0, start, (*TEXT[start : start + accepted], 9, 9, 9)[:4], Phase.VERIFY)))
        core.restore(0, kept)
        out.append(fed(core, (0, start, (*TEXT[start : start + accepted], 11, 11, 11)[:4], Phase.VERIFY)))
        start += accepted
        if start < len(TEXT) - 4:
            out.append(fed(core, (0, start, TEXT[start : start + 1], Phase.DECODE)))
            start += 1
    out.append(fed(core, (0, start, TEXT[start:] or (1,), Phase.DECODE)))
    out.append(fed(core, (1, 0, TEXT[5:12], Phase.PREFILL)))
    return out


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_mapped_table_gives_the_rows_of_a_resident_one_however_a_text_is_fed(core_of: Any, world: int) -> None:
    mapped = core_of(True, world)
    found = history(mapped)
    assert found == history(core_of(False, 1))
    assert len(set(found)) > len(found) // 2


def test_every_token_must_be_known(core_of: Any) -> None:
    core = core_of(True, 1)
    assert not core.takes_picks
    with pytest.raises(ValueError, match="needs every token, and cannot take picks"):
        fed(core, (0, 0, (3, picked(0)), Phase.PREFILL))


def test_nothing_compiles_after_warm_up(core_of: Any) -> None:
    core = core_of.__wrapped__(True, 2)
    before = compiles.count()
    fed(core, (0, 0, TEXT[:3], Phase.PREFILL))
    fed(core, (0, 3, TEXT[3:14], Phase.PREFILL), (1, 0, TEXT[:4], Phase.VERIFY))
    fed(core, (1, 2, TEXT[2:3], Phase.DECODE))
    assert compiles.count() == before


def test_rows_are_those_of_the_whole_text_and_zeros_behind_it(opened: Any) -> None:
    config, tree, checkpoint = opened
    table = MappedTable(checkpoint, dict(flatten(tree))["layers.ple.ngram_embedding"])
    reader = NgramReader(config.ngram, table, 1)
    whole = reader.rows([((), TEXT)], 24)
    assert (whole[: len(TEXT)] == table.rows(config.ngram.ids(TEXT)).reshape(len(TEXT), -1)).all()
    assert not whole[len(TEXT) :].any()
    parts = reader.rows([((), TEXT[:3]), (TEXT[1:3], TEXT[3:])], 24)
    assert (parts == whole).all()
    ranked = NgramReader(config.ngram, table, 2).rows([((), TEXT)], 24)
    assert ranked.shape == (2, 24, config.ple_embed_dim // 2)
    assert (np.concatenate([*ranked], axis=-1) == whole).all()
    assert not reader.rows([], 8).any()


def test_the_keeper_knows_the_tokens_before_every_place_a_segment_may_start_at() -> None:
    keeper = SlotKeeper(("ring",), 1, 4, back=2)

    def segment(start: int, text: tuple[int, ...], phase: Phase = Phase.PREFILL) -> Segment:
        return Segment(0, start, text, phase)

    assert keeper.before(segment(0, (1,))) == ()
    keeper.advance([segment(0, (10,))])
    assert keeper.before(segment(1, (1,))) == (10,)
    keeper.advance([segment(1, (11, 12, 13))])
    assert keeper.before(segment(4, (1,))) == (12, 13)
    keeper.advance([segment(4, (14, 15, 16, 17), Phase.VERIFY)])
    assert [keeper.before(segment(start, (1,))) for start in (4, 5, 6, 7, 8)] == [
        (12, 13), (13, 14), (14, 15), (15, 16), (16, 17),
    ]  # fmt: skip
    kept = keeper.keep(0, {"ring": jnp.zeros((1, 1, 4))}, ranked=False)
    keeper.advance([segment(6, (20, 21), Phase.VERIFY)])
    assert keeper.before(segment(7, (1,))) == (15, 20)
    keeper.advance([segment(0, (30, 31))])
    assert keeper.before(segment(2, (1,))) == (30, 31)
    keeper.restore(0, kept, {"ring": jnp.zeros((1, 1, 4))}, ranked=False)
    assert keeper.before(segment(6, (1,))) == (14, 15)


def test_a_longer_ngram_looks_further_back() -> None:
    table = NgramTable(2048, EOS, 4, 4, 100, 8, 1)
    spec = TensorSpec("t", (table.rows, 16), ("ngrams", "embed"), linear=False)

    class Numbers:
        """A table whose rows are their own numbers."""

        def __init__(self) -> None:
            self.spec = spec

        def rows(self, ids: np.ndarray) -> np.ndarray:
            return np.repeat(ids[..., None], 16, axis=-1).astype(np.float32)

    reader = NgramReader(table, Numbers(), 1)  # type: ignore[arg-type]
    assert reader.back == 3
    whole = reader.rows([((), TEXT)], len(TEXT))
    for cut in range(1, len(TEXT)):
        part = reader.rows([(TEXT[max(0, cut - reader.back) : cut], TEXT[cut:])], len(TEXT) - cut)
        assert (part == whole[cut:]).all()
