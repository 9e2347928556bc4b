"""Tile sizes and instruction classes of the product kernel, as data per architecture: triton_tiles.json.

The file holds, for each architecture and kind of weight (`kind_of`), the class of the matrix instruction, and a tile
for each class of row counts: [columns, rows, bytes, warps, stages]. Under "few" stand those for products of so few
programs that each should have more of the weight under way: leaves of a row-parallel matrix, and matrices of bfloat16
with FEW_OUTPUTS outputs. Tiles change speed, never bits, while they keep to
the class: on sm_90 a multiple of 4 warps with 64 columns or more makes Triton choose `wgmma`; all else is `mma.sync`.
`python -m bench.tune --write` chooses them on a device; those of sm_121 keep to its 99 KiB of shared memory.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgpp.kernels.linear.triton_recipe import GROUP, Recipe

PATH = Path(__file__).with_suffix(".json")
ROWS = (16, 32, 64, 128)
"""The classes of row counts: a batch takes the smallest that holds it, or the last."""
FEW_OUTPUTS = 512
"""Outputs of a router, or of the gates of a DeltaNet layer."""


@dataclass(frozen=True)
class Tile:
    """`columns` BN outputs x `rows` BR, walked along K in steps of `bytes` of a weight's row (except that a group under
    one scale is never cut, and at most two are taken at once), and how Triton compiles the kernel."""

    columns: int
    rows: int
    bytes: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Tuned:
    """The matrix instruction of a kind of weight, and its tiles by the classes of row counts."""

    instruction: str  # "wgmma" or "mma.sync"
    tiles: Mapping[int, Tile]
    few: Mapping[int, Tile] = field(default_factory=dict)


def read(path: Path = PATH) -> dict[str, dict[str, Tuned]]:
    """The file's contents by architecture and kind."""
    return {
        architecture: {
            kind: Tuned(entry["class"], _tiles(entry["tiles"]), _tiles(entry.get("few", {})))
            for kind, entry in kinds.items()
        }
        for architecture, kinds in json.loads(path.read_text()).items()
    }


def _tiles(entry: Mapping[str, Sequence[int]]) -> dict[int, Tile]:
    return {int(rows): Tile(*tile) for rows, tile in entry.items()}


def write(found: Mapping[str, Mapping[str, Tuned]], path: Path = PATH) -> None:
    """Writes the file, a line a kind."""
    blocks = []
    for architecture, kinds in found.items():
        lines = []
        for kind, tuned in kinds.items():
            entry: dict[str, Any] = {"class": tuned.instruction}
            for name, tiles in (("tiles", tuned.tiles), ("few", tuned.few)):
                if tiles:
                    entry[name] = {str(rows): dataclasses.astuple(tile) for rows, tile in tiles.items()}
            lines.append(f"    {json.dumps(kind)}: {json.dumps(entry)}")
        blocks.append(f"  {json.dumps(architecture)}: {{\n" + ",\n".join(lines) + "\n  }")
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


TILES = read()
LIKE = {"int8": "e4m3", "int4": "e2m1", "nf4": "e2m1"}
"""Codes that take the tiles of another."""


def kind_of(found: Recipe) -> str:
    """What decides the tile beside the architecture and the rows: the code, and how its scales are applied."""
    code = LIKE.get(found.code, found.code)
    if found.code in ("bf16", "f16"):
        return code
    if found.group < GROUP:
        return f"{code} in small groups"
    return f"{code} under powers of two" if found.kind == "e8m0" and found.scale_width < GROUP else code


def tuned_for(architecture: str, found: Recipe) -> Tuned:
    """The entry of a kind. Raises ValueError for an architecture without tiles."""
    if architecture not in TILES:
        raise ValueError(f'kernels "triton" have no tiles for {architecture}; they have for {", ".join(TILES)}')
    return TILES[architecture][kind_of(found)]


def tile_for(architecture: str, found: Recipe, rows: int, few: bool = False) -> Tile:
    """The tile for `rows` rows, in a product of few programs or not. Raises ValueError for an architecture without
    tiles."""
    tuned = tuned_for(architecture, found)
    size = next((size for size in ROWS if size >= rows), ROWS[-1])
    return tuned.few.get(size, tuned.tiles[size]) if few else tuned.tiles[size]
