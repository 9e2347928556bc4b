"""The matrix instruction of every kind of weight is the one that the file of tiles names, at every number of rows."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from unittest import mock

import pytest

from tests.kernels.gpu.available import needs_triton

pytestmark = needs_triton

OPCODES = {"wgmma": "HGMMA", "mma.sync": "HMMA"}


def check(architecture: str, kinds: list[str], rows: tuple[int, ...]) -> None:
    """Compiles the product kernel of each kind for each number of rows."""
    from bench.compiled import compiled, launches
    from bench.tune import KINDS
    from dgpp.kernels.linear.triton_tiles import TILES, Tuned

    for kind in kinds:
        tuned = TILES[architecture][kind]
        for part, count in [("tiles", count) for count in rows] + [("few", count) for count in tuned.few]:
            chosen = Tuned(tuned.instruction, {**tuned.tiles, **getattr(tuned, part)})
            with mock.patch.dict(TILES[architecture], {kind: chosen}):
                *_, launch = launches(KINDS[kind], count, architecture)
            found = {code.split(".")[0] for code in compiled(launch, architecture).opcodes}
            assert found & set(OPCODES.values()) == {OPCODES[tuned.instruction]}, f"{kind}, {count} rows, {part}"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_90", "sm_121"])
def test_the_class_is_the_pinned_one(architecture: str) -> None:
    if architecture == "sm_121" and importlib.metadata.version("triton") < "3.9":
        pytest.skip("the disassembler of Triton before 3.9 does not know sm_121")
    check(architecture, ["e4m3", "e4m3 under powers of two", "e2m1"], (1, 300))


@pytest.mark.gpu
def test_the_class_is_the_pinned_one_on_this_device() -> None:
    from bench.tune import KINDS
    from dgpp.kernels.gpu.launch import architecture
    from dgpp.kernels.linear.triton_tiles import TILES

    check(architecture(), [kind for kind in TILES[architecture()] if kind in KINDS], (16, 17, 64, 2048))


def test_every_architecture_has_every_kind_and_class_of_row_counts() -> None:
    from dgpp.kernels.linear.triton_tiles import ROWS, TILES

    assert len({tuple(sorted(kinds)) for kinds in TILES.values()}) == 1
    for kinds in TILES.values():
        for tuned in kinds.values():
            assert tuned.instruction in OPCODES
            assert tuple(tuned.tiles) == ROWS
            assert set(tuned.few) <= set(ROWS)


def test_the_file_of_tiles_is_as_it_would_be_written(tmp_path: Path) -> None:
    from dgpp.kernels.linear.triton_tiles import PATH, TILES, read, write

    write(TILES, tmp_path / "tiles.json")
    assert (tmp_path / "tiles.json").read_text() == PATH.read_text()
    assert read(tmp_path / "tiles.json") == TILES
