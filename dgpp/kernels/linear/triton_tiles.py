"""Tile sizes of the product kernel, as data per architecture. They change speed, never bits.

A tile is BN outputs x BR rows, walked along K in steps of `bytes` of a weight's row (except that a group of weights
under one scale is never cut, and at most four are taken at once). On sm_90 BN is a multiple of 64 and there are 4 warps
for every 64: the matrix instruction is then `wgmma` for every number of rows. Chosen by `python -m bench.kernels --tune` at the
shapes of Qwen3.8-27B.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """`columns` BN, `rows` BR, `bytes` of K in a step, and how Triton compiles the kernel."""

    columns: int
    rows: int
    bytes: int
    warps: int
    stages: int


ROWS = (16, 32, 64, 128)
"""The row tiles: a batch takes the smallest that holds it, or several of the last."""

TILES: dict[str, dict[str, dict[int, Tile]]] = {
    "sm_90": {
        "bf16": {
            16: Tile(64, 16, 256, 4, 5),
            32: Tile(64, 32, 256, 4, 4),
            64: Tile(64, 64, 256, 4, 4),
            128: Tile(128, 128, 128, 8, 4),
        },
        "f16": {
            16: Tile(64, 16, 256, 4, 5),
            32: Tile(64, 32, 256, 4, 4),
            64: Tile(64, 64, 256, 4, 4),
            128: Tile(128, 128, 128, 8, 4),
        },
        "e4m3": {
            16: Tile(64, 16, 128, 4, 6),
            32: Tile(64, 32, 128, 4, 5),
            64: Tile(64, 64, 128, 4, 4),
            128: Tile(128, 128, 128, 8, 3),
        },
        "e2m1": {
            16: Tile(64, 16, 128, 4, 5),
            32: Tile(64, 32, 128, 4, 4),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(128, 128, 64, 8, 3),
        },
    },
    "sm_121": {
        "bf16": {
            16: Tile(64, 16, 256, 4, 3),
            32: Tile(64, 32, 256, 4, 3),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(128, 128, 64, 8, 3),
        },
        "f16": {
            16: Tile(64, 16, 256, 4, 3),
            32: Tile(64, 32, 256, 4, 3),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(128, 128, 64, 8, 3),
        },
        "e4m3": {
            16: Tile(64, 16, 128, 4, 4),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 128, 4, 3),
            128: Tile(128, 128, 64, 8, 2),
        },
        "e2m1": {
            16: Tile(64, 16, 128, 4, 3),
            32: Tile(64, 32, 128, 4, 3),
            64: Tile(64, 64, 64, 4, 3),
            128: Tile(128, 128, 64, 8, 2),
        },
    },
}
LIKE = {"int8": "e4m3", "int4": "e2m1"}
"""Codes that take the tiles of another."""


def tile(architecture: str, code: str, rows: int) -> Tile:
    """The tile for `rows` rows of weights with operand `code`. Raises ValueError for an architecture without tiles."""
    if architecture not in TILES:
        raise ValueError(f'kernels "triton" have no tiles for {architecture}; they have for {", ".join(TILES)}')
    fitting = next((size for size in ROWS if size >= rows), ROWS[-1])
    return TILES[architecture][LIKE.get(code, code)][fitting]
