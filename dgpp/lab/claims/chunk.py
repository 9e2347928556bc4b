"""chunk: a prompt has the same logits in one piece and cut anywhere, also around the borders of pages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served, spread

PAGES = 3
"""The prompt that is fed in pieces crosses this many borders of pages."""


def _plan(s: Subject) -> Plan:
    short, long = s.effort.prompt, PAGES * s.page + 5
    pieces = [(c, short - c) for c in range(1, short)] + [_pieces(long, size) for size in _sizes(s.page)]
    most = max(short, long)
    if most > s.slot_tokens or s.core.pool.pages_for(most) > s.core.pool.free:
        return Plan.nothing(f"{most} tokens do not fit the context or the free pages")
    samples = s.core.samples
    return Plan(sum(len(spread(size, samples)) for parts in pieces for size in parts), lambda: _pairs(s, pieces))


def _sizes(page: int) -> tuple[int, ...]:
    return 1, 2, page - 1, page, page + 1


def _pieces(total: int, size: int) -> tuple[int, ...]:
    return (*[size] * (total // size), *([total % size] if total % size else []))


def _pairs(s: Subject, cases: list[tuple[int, ...]]) -> Iterator[Pair]:
    core = s.core
    whole: dict[int, np.ndarray] = {}
    for pieces in cases:
        tokens = s.tokens(sum(pieces), stream=sum(pieces))
        with session(core, 0, len(tokens)):
            if len(tokens) not in whole:
                whole[len(tokens)] = served(core, 0, 0, tokens, Phase.PREFILL, range(len(tokens)))
            expected, at = whole[len(tokens)], 0
            cut = f"cut after {pieces[0]}" if len(pieces) == 2 else f"in pieces of {pieces[0]}"
            for size in pieces:
                places = spread(size, core.samples)
                found = served(core, 0, at, tokens[at : at + size], Phase.PREFILL, places)
                for place, logits in zip(places, found, strict=True):
                    where = f"{len(tokens)} tokens {cut}, position {at + place}"
                    yield Pair(where, expected[at + place], logits)
                at += size


CLAIM = Claim("chunk", _plan)
