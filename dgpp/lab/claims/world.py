"""world: one, two and four ranks have the same logits, reading a prompt and decoding. The ranks are devices of this
process (a CPU can be divided into as many as are wanted)."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from dgpp.engine.core import Core
from dgpp.engine.ranks import check_world
from dgpp.engine.session import session
from dgpp.engine.settings import SettingsError
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served

WORLDS = (2, 4)
DECODED = 8
"""Tokens fed one by one after the prompt."""


def _plan(s: Subject) -> Plan:
    count = s.effort.prompt + DECODED
    if count > s.slot_tokens:
        return Plan.nothing(f"{count} tokens do not fit the context")
    obstacles = {size: _obstacle(s, size) for size in WORLDS}
    sizes = [size for size in WORLDS if obstacles[size] is None]
    note = "; ".join(f"no world of {size}: {why}" for size, why in obstacles.items() if why is not None)
    return Plan(len(sizes) * count, lambda: _pairs(s, sizes, count), note)


def _obstacle(s: Subject, size: int) -> str | None:
    """Why there can be no world of `size` ranks here."""
    if size > jax.device_count():
        return f"{jax.device_count()} of {size} devices"
    try:
        check_world(s.model.tree, s.model.family.tied(s.model.config), size)
    except SettingsError as error:
        return str(error)
    return None


def _pairs(s: Subject, sizes: list[int], count: int) -> Iterator[Pair]:
    tokens = s.tokens(count)
    expected = _logits(s.world(1), tokens)
    for size in sizes:
        found = _logits(s.world(size), tokens)
        for at in range(count):
            what = "decoded" if at >= count - DECODED else "read"
            yield Pair(f"world of {size}, {what} at position {at}", expected[at], found[at])


def _logits(core: Core, tokens: tuple[int, ...]) -> np.ndarray:
    read = len(tokens) - DECODED
    with session(core, 0, len(tokens)):
        parts = [served(core, 0, 0, tokens[:read], Phase.PREFILL, range(read))]
        parts += [served(core, 0, at, tokens[at : at + 1], Phase.DECODE, (0,)) for at in range(read, len(tokens))]
    return np.concatenate(parts)


CLAIM = Claim("world", _plan)
