"""Tile sizes of the product kernel, as data per architecture. They change speed, never bits.

A tile is BN outputs x BR rows, walked along K in steps of `bytes` of a weight's row (except that a group of weights
under one scale is never cut, and at most four are taken at once). On sm_90 BN is a multiple of 64 and there are 4 warps
for every 64: the matrix instruction is then `wgmma` for every number of rows. Those of sm_90 were chosen by
`python -m bench.kernels --tune` at the shapes of Qwen3.8-27B; those of sm_121 keep to its 99 KiB of shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgpp.kernels.linear.triton_recipe import GROUP, Recipe


@dataclass(frozen=True)
class Tile:
    """`columns` BN, `rows` BR, `bytes` of K in a step, and how Triton compiles the kernel."""

    columns: int
    rows: int
    bytes: int
    warps: int
    stages: int


ROWS = (16, 32, 64, 128)
"""The classes of row counts: a batch takes the smallest that holds it, or the last."""

_HALVES_90 = {
    16: Tile(64, 16, 256, 4, 3),
    32: Tile(64, 32, 128, 4, 4),
    64: Tile(64, 64, 128, 4, 4),
}
_HALVES_121 = {
    16: Tile(64, 16, 256, 4, 3),
    32: Tile(64, 32, 128, 4, 3),
    64: Tile(64, 64, 128, 4, 3),
}

TILES: dict[str, dict[str, dict[int, Tile]]] = {
    "sm_90": {
        "bf16": _HALVES_90 | {128: Tile(128, 256, 128, 8, 3)},
        "f16": _HALVES_90 | {128: Tile(128, 128, 256, 8, 2)},
        "e4m3": {
            16: Tile(64, 16, 128, 4, 4),
            32: Tile(64, 32, 128, 4, 4),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(128, 128, 128, 8, 3),
        },
        "e4m3 in small groups": {
            16: Tile(64, 16, 128, 4, 3),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(64, 128, 64, 4, 3),
        },
        "e2m1": {
            16: Tile(64, 16, 128, 4, 3),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 64, 4, 3),
            128: Tile(64, 128, 64, 4, 3),
        },
        "e2m1 in small groups": {
            16: Tile(64, 16, 64, 4, 3),
            32: Tile(64, 32, 64, 4, 3),
            64: Tile(64, 64, 64, 4, 3),
            128: Tile(64, 128, 32, 4, 3),
        },
    },
    "sm_121": {
        "bf16": _HALVES_121 | {128: Tile(128, 128, 64, 8, 3)},
        "f16": _HALVES_121 | {128: Tile(64, 64, 256, 4, 2)},
        "e4m3": {
            16: Tile(64, 16, 128, 4, 4),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(64, 128, 128, 8, 2),
        },
        "e4m3 in small groups": {
            16: Tile(64, 16, 128, 4, 4),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 64, 4, 3),
            128: Tile(64, 64, 64, 4, 3),
        },
        "e2m1": {
            16: Tile(64, 16, 64, 4, 4),
            32: Tile(64, 32, 64, 4, 3),
            64: Tile(64, 64, 64, 4, 3),
            128: Tile(64, 128, 64, 8, 2),
        },
        "e2m1 in small groups": {
            16: Tile(64, 16, 64, 4, 4),
            32: Tile(64, 32, 64, 4, 3),
            64: Tile(64, 64, 32, 4, 3),
            128: Tile(64, 64, 32, 4, 3),
        },
    },
}
LIKE = {"int8": "e4m3", "int4": "e2m1"}
"""Codes that take the tiles of another."""


def tile_for(architecture: str, found: Recipe, rows: int) -> Tile:
    """The tile for `rows` rows. Raises ValueError for an architecture without tiles."""
    if architecture not in TILES:
        raise ValueError(f'kernels "triton" have no tiles for {architecture}; they have for {", ".join(TILES)}')
    code = LIKE.get(found.code, found.code)
    if code in ("e4m3", "e2m1") and found.group < GROUP:
        code += " in small groups"
    return TILES[architecture][code][next((size for size in ROWS if size >= rows), ROWS[-1])]
