"""The processors our native kernels are written for, as data: register width and tiles per instruction set.

Tiles change speed and nothing else: an output's sixteen lanes are added in the same order by all of them.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Tile:
    """What one inner loop of linear holds in registers: `rows` x `columns` outputs, `groups` registers of each.

    An output has 16 lanes, so 16 / width registers; `groups` of them are walked over K at a time.
    """

    rows: int
    columns: int
    groups: int


@dataclass(frozen=True)
class Target:
    """One instruction set. `needs` are LLVM feature names; `width` is float32 values a register.

    `tiles[r - 1]` serves r rows at once; more rows than len(tiles) are walked in tiles of the last.
    Attention joins up to `heads` query heads that share a key head, and holds up to `accumulators` registers of sums.
    """

    name: str
    arch: str
    needs: tuple[str, ...]
    width: int
    tiles: tuple[Tile, ...]
    heads: int
    accumulators: int
    options: str = ""  # further LLVM features to compile with


TARGETS = (
    Target(
        "avx512",
        arch="x86_64",
        needs=("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"),
        width=16,
        tiles=(Tile(1, 8, 1), Tile(2, 6, 1), Tile(3, 6, 1), Tile(4, 6, 1), Tile(5, 4, 1), Tile(6, 4, 1)),
        heads=4,
        accumulators=24,
        options="-prefer-256-bit",  # without it LLVM cuts 512-bit vectors in two on many of these processors
    ),
    Target(
        "avx2",
        arch="x86_64",
        needs=("avx2", "fma"),
        width=8,
        tiles=(Tile(1, 4, 2), Tile(2, 3, 2), Tile(3, 2, 2), Tile(4, 3, 1), Tile(5, 2, 1), Tile(6, 2, 1)),
        heads=4,
        accumulators=12,
    ),
    Target(
        "neon",
        arch="aarch64",
        needs=(),  # every aarch64 has it
        width=4,
        tiles=(Tile(1, 4, 4), Tile(2, 2, 4), Tile(3, 2, 2), Tile(4, 2, 2), Tile(5, 4, 1), Tile(6, 4, 1)),
        heads=4,
        accumulators=24,
    ),
)

ARCHITECTURES = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def host_target() -> Target | None:
    """The first entry of TARGETS that this machine can run, or None."""
    if platform.system() not in ("Linux", "Darwin"):
        return None  # the helper threads are POSIX threads
    arch = ARCHITECTURES.get(platform.machine())
    features = llvm.get_host_cpu_features()
    for target in TARGETS:
        if target.arch == arch and all(features.get(need, False) for need in target.needs):
            return target
    return None
