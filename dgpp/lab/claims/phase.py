"""phase: a token has the same logits when it is read with the prompt, decoded, or verified as a draft.

Verify groups are tried in every width, accepted whole, and with drafts that are rejected: then the group's right rows
are compared, the sequence is rewound to them, and the next group overwrites what the wrong ones left in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served

PREFIX = 3
"""Tokens that are read before the first verify group."""


def _plan(s: Subject) -> Plan:
    count = s.effort.prompt
    room = count + max(s.effort.widths)
    if room > s.slot_tokens or s.core.pool.pages_for(room) > s.core.pool.free:
        return Plan.nothing(f"{room} tokens do not fit the context or the free pages")
    return Plan(count + 2 * len(s.effort.widths) * (count - PREFIX), lambda: _pairs(s, room))


def _pairs(s: Subject, room: int) -> Iterator[Pair]:
    core, tokens = s.core, s.tokens(s.effort.prompt)
    wrong = s.tokens(len(tokens) + max(s.effort.widths), stream=1)
    with session(core, 0, room):
        expected = served(core, 0, 0, tokens, Phase.PREFILL, range(len(tokens)))
        for at, token in enumerate(tokens):
            yield Pair(f"decoded at position {at}", expected[at], served(core, 0, at, (token,), Phase.DECODE, (0,))[0])
        served(core, 0, 0, tokens[:PREFIX], Phase.PREFILL, ())
        start = core.keep(0)
        for width in s.effort.widths:
            core.restore(0, start)
            for at in range(PREFIX, len(tokens), width):
                group = tokens[at : at + width]
                found = served(core, 0, at, group, Phase.VERIFY, range(len(group)))
                yield from _each(f"verified {width} wide", expected, found, at)
        for width in s.effort.widths:
            core.restore(0, start)
            at, accepted = PREFIX, 1
            while at < len(tokens):
                right = tokens[at : at + accepted]
                group = right + wrong[at + len(right) : at + width]
                found = served(core, 0, at, group, Phase.VERIFY, range(len(group)))
                yield from _each(f"verified {width} wide with {accepted} accepted", expected, found[: len(right)], at)
                at, accepted = at + len(right), accepted % width + 1


def _each(what: str, expected: np.ndarray, found: np.ndarray, first: int) -> Iterator[Pair]:
    for row, logits in enumerate(found):
        yield Pair(f"{what} at position {first + row}", expected[first + row], logits)


CLAIM = Claim("phase", _plan)
