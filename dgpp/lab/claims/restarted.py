"""The other process of the restart claim: reads its order as JSON from stdin, writes logits to the file it is given."""

from __future__ import annotations

import json
import sys

import numpy as np

from dgpp.engine.core import Core
from dgpp.engine.options import ModelOptions
from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.restart import run
from dgpp.lab.claims.subject import Subject, served
from dgpp.lab.model import load


def main() -> None:
    """Runs the order."""
    order = json.load(sys.stdin)
    options = ModelOptions(**order["options"])
    model = load(order["model"], kernels=order["kernels"], options=options, **order["settings"])
    core, prompt, generated = model.core, tuple(order["prompt"]), order["generated"]
    disturb(Subject(model), len(prompt) + generated)
    with session(core, last_slot(core), len(prompt) + generated) as sequence:
        logits = run(sequence, prompt, generated)
    np.save(sys.argv[1], logits)


def last_slot(core: Core) -> int:
    """The slot furthest from the one that the first process uses."""
    return core.settings.slots - 1


def disturb(s: Subject, needed: int) -> None:
    """Compiles the row families from the largest to the smallest, fills the cache with other tokens, and leaves the
    free pages in another order, without the first one where a page and a slot can be spared for `needed` tokens."""
    core, pool = s.core, s.core.pool
    sizes = [min(rows, s.slot_tokens) for rows in sorted(core.settings.row_families, reverse=True)]
    with session(core, 0, s.slot_tokens):
        for size in sizes:
            served(core, 0, 0, s.tokens(size, stream=size), Phase.PREFILL, ())
        for start in range(0, s.slot_tokens - sizes[0] + 1, sizes[0]):
            served(core, 0, start, s.tokens(sizes[0], stream=10_000 + start), Phase.PREFILL, ())
    others = range(1, core.settings.slots)
    if others and pool.free > pool.pages_for(needed):
        pool.reserve(0, 1)
    for slot in others:
        pool.reserve(slot, min(1 + slot % 3, pool.free, s.slot_tokens // s.page) * s.page)
    for slot in others:
        pool.release(slot)


if __name__ == "__main__":
    main()
