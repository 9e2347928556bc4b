"""lab: a notebook computes what a server computes: capturing every activation, or none, and in the served step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served

DECODED = 4
"""Tokens fed one by one after the prompt."""


def _plan(s: Subject) -> Plan:
    count = s.effort.prompt + DECODED
    if count > s.slot_tokens or s.core.pool.pages_for(count) > s.core.pool.free:
        return Plan.nothing(f"{count} tokens do not fit the context or the free pages")
    return Plan(2 * count, lambda: _pairs(s, count))


def _pairs(s: Subject, count: int) -> Iterator[Pair]:
    core, tokens = s.core, s.tokens(count)
    steps = [tokens[:-DECODED], *[(token,) for token in tokens[-DECODED:]]]
    with session(core, 0, count):
        expected = np.concatenate(
            [served(core, 0, at, part, phase, range(len(part))) for at, part, phase in _fed(steps)]
        )
    for what, patterns in (("no capture", ()), ("every activation captured", ("*",))):
        with session(core, 0, count) as sequence:
            found = np.concatenate([sequence.every(part, phase, patterns) for _, part, phase in _fed(steps)])
            for at in range(count):
                yield Pair(f"{what}, position {at}", expected[at], found[at])


def _fed(steps: list[tuple[int, ...]]) -> Iterator[tuple[int, tuple[int, ...], Phase]]:
    at = 0
    for part in steps:
        yield at, part, Phase.DECODE if at else Phase.PREFILL
        at += len(part)


CLAIM = Claim("lab", _plan)
