"""A search for good trellis tiles: the encoder of EXL3.

Every tile is a path of 256 positions through the states; the squared error of a path is a sum over positions, so a beam
of the best partial paths is kept. The path must end in the state it began with. A first, short pass finds a state that
suits the end of the tile; the second fixes it at both ends. This is a research encoder: it rounds weights, it knows no
activations (exllamav3 weighs errors by their Hessian). Squared error of Gaussian weights at 4 bits, relative to their
variance: 0.011 with 16 paths, 0.0073 with 64, 0.0058 with 256; the theoretical limit is 0.0039.
"""

from __future__ import annotations

import numpy as np

from dgpp.formats.exl3_trellis import POSITIONS, STATES, codebook, new_bits

BEAM = 16  # paths kept by default: quick enough to write test checkpoints
LEAD = 24  # positions before the end of the tile at which the first pass starts


def search(targets: np.ndarray, rate: float, book: str, beam: int) -> np.ndarray:
    """The symbols uint16 [T, 256] of tiles whose values are near float32 targets [T, 256], both by position."""
    table = codebook(book)
    bits = new_bits(rate)
    tiles = targets.shape[0]
    order = np.arange(POSITIONS - LEAD, POSITIONS + LEAD) % POSITIONS
    path = _beam(targets, table, bits, order, np.zeros(tiles, np.int64), None, beam)
    end = np.zeros(tiles, np.int64)
    for place in range(LEAD):
        end = ((end << bits[order[place]]) | path[:, place]) & (STATES - 1)
    return _beam(targets, table, bits, np.arange(POSITIONS), end, end, beam).astype(np.uint16)


def _beam(
    targets: np.ndarray,
    table: np.ndarray,
    bits: np.ndarray,
    order: np.ndarray,
    start: np.ndarray,  # int64 [T]: the state before the first position
    end: np.ndarray | None,  # int64 [T]: the state after the last one, or None if any will do
    beam: int,
) -> np.ndarray:
    """The symbols int64 [T, len(order)] of the best path found."""
    tiles = targets.shape[0]
    state = start[:, None]
    cost = np.zeros((tiles, 1))
    chosen: list[tuple[np.ndarray, np.ndarray]] = []
    left = int(bits[order].sum())
    for position in order:
        width = int(bits[position])
        left -= width
        fresh = ((state[:, :, None] << width) | np.arange(1 << width)) & (STATES - 1)
        total = cost[:, :, None] + (table[fresh] - targets[:, position, None, None]) ** 2
        if end is not None and left < 16:
            # What is known of the last state by now must be the end of this one.
            total = np.where((fresh & ((1 << (16 - left)) - 1)) == (end >> left)[:, None, None], total, np.inf)
        flat = total.reshape(tiles, -1)
        keep = min(beam, flat.shape[1])
        best = np.argpartition(flat, keep - 1, axis=1)[:, :keep]
        cost = np.take_along_axis(flat, best, 1)
        state = np.take_along_axis(fresh.reshape(tiles, -1), best, 1)
        chosen.append((best >> width, best & ((1 << width) - 1)))
    place = cost.argmin(1)
    path = np.zeros((tiles, len(order)), np.int64)
    for step in range(len(order) - 1, -1, -1):
        parent, symbol = chosen[step]
        path[:, step] = np.take_along_axis(symbol, place[:, None], 1)[:, 0]
        place = np.take_along_axis(parent, place[:, None], 1)[:, 0]
    return path
