"""rows: a decode row has the same logits alone and among up to 32 rows of other requests, at any place among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from dgpp.engine.batch import Segment
from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served


def _plan(s: Subject) -> Plan:
    most = min(s.effort.neighbours, max(s.core.settings.row_families) - 1)
    slots = s.core.settings.slots
    if slots < 3:
        return Plan.nothing("neighbours before and after a row need two slots beside its own")
    held = [_tokens_held(s, slot, most) for slot in range(slots)]
    if max(held) > s.slot_tokens or sum(map(s.core.pool.pages_for, held)) > s.core.pool.free:
        return Plan.nothing(f"{slots} slots of up to {max(held)} tokens do not fit the context or the free pages")
    left_out = s.effort.neighbours - most
    note = f"at most {most} neighbours fit a step" if left_out else ""
    return Plan(sum(n + 1 for n in range(1, most + 1)), lambda: _pairs(s, most), note)


def _tokens_held(s: Subject, slot: int, most: int) -> int:
    return s.page + 6 if slot == 0 else _context(slot) + most


def _context(slot: int) -> int:
    """Tokens that a neighbour has in its cache, so that neighbours are of many lengths."""
    return 1 + 3 * slot


def _pairs(s: Subject, most: int) -> Iterator[Pair]:
    core, slots, start = s.core, s.core.settings.slots, s.page + 5
    tokens = s.tokens(start + 1)
    with ExitStack() as stack:
        for slot in range(slots):
            stack.enter_context(session(core, slot, _tokens_held(s, slot, most)))
            context = tokens[:start] if slot == 0 else s.tokens(_context(slot), stream=slot)
            served(core, slot, 0, context, Phase.PREFILL, ())
        kept = [core.keep(slot) for slot in range(slots)]
        alone = served(core, 0, start, tokens[start:], Phase.DECODE, (0,))[0]
        row = Segment(0, start, tokens[start:], Phase.DECODE, (0,))
        for count in range(1, most + 1):
            for place in range(count + 1):
                slots_before = _share(place, count, slots - 1)
                before = _neighbours(s, range(1, 1 + slots_before), place, count)
                after = _neighbours(s, range(1 + slots_before, slots), count - place, count)
                for slot, state in enumerate(kept):
                    core.restore(slot, state)
                logits = core.step([*before, row, *after]).logits
                yield Pair(f"{place} rows before it and {count - place} after", alone, np.asarray(logits)[len(before)])


def _share(place: int, count: int, slots: int) -> int:
    """How many of the neighbours' slots stand before the row, so that each side that has rows has a slot."""
    if place in (0, count):
        return slots if place else 0
    return min(max(1, round(slots * place / count)), slots - 1)


def _neighbours(s: Subject, slots: range, rows: int, stream: int) -> list[Segment]:
    """`rows` rows dealt to the next segments of the slots, as decode rows, verify groups and prefill chunks."""
    if not rows:
        return []
    used = list(slots)[:rows]
    sizes = [rows // len(used) + (i < rows % len(used)) for i in range(len(used))]
    tokens = iter(s.tokens(rows, stream=1000 + stream))
    segments = []
    for slot, size in zip(used, sizes, strict=True):
        phase = Phase.DECODE if size == 1 else Phase.VERIFY if size <= 8 else Phase.PREFILL
        part = tuple(next(tokens) for _ in range(size))
        segments.append(Segment(slot, _context(slot), part, phase, (size - 1,)))
    return segments


CLAIM = Claim("rows", _plan)
