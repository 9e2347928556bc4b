"""restart: this process and a new one have the same logits, although the new one compiles everything anew and in
another order, and puts the sequence into another slot, on other pages, in a cache full of somebody else's tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import dgpp
from dgpp.engine.core import Core
from dgpp.engine.session import Session, session
from dgpp.kernels.rows import Phase
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject, served, spread

SECONDS = 1800
"""How long the other process may take."""


def _plan(s: Subject) -> Plan:
    sizes = pieces(s.core)
    count = sum(sizes) + s.effort.generated
    if count > s.slot_tokens or s.core.pool.pages_for(count) > s.core.pool.free:
        return Plan.nothing(f"{count} tokens do not fit the context or the free pages")
    read = sum(len(spread(size, s.core.samples)) for size in sizes)
    return Plan(read + s.effort.generated, lambda: _pairs(s, sum(sizes), count))


def pieces(core: Core) -> tuple[int, ...]:
    """Pieces of a prompt that need every row family once: one row, then one more than the family before holds."""
    families = sorted(core.settings.row_families)
    return (1, *(family + 1 for family in families[:-1]))


def run(s: Session, prompt: tuple[int, ...], generated: int) -> np.ndarray:
    """The logits of the prompt's pieces and of the greedy tokens after it, float32 [n, V]."""
    parts = []
    for size in pieces(s.core):
        part = prompt[s.length : s.length + size]
        parts.append(served(s.core, s.slot, s.length, part, Phase.PREFILL, spread(size, s.core.samples)))
        s.length += size
    for _ in range(generated):
        token = int(parts[-1][-1].argmax())
        parts.append(s.last((token,), Phase.DECODE)[None])
    return np.concatenate(parts)


def _pairs(s: Subject, prompt_tokens: int, count: int) -> Iterator[Pair]:
    prompt, generated = s.tokens(prompt_tokens), s.effort.generated
    with session(s.core, 0, count) as sequence:
        expected = run(sequence, prompt, generated)
    found = _in_new_process(
        {
            "model": str(s.model.checkpoint.directory),
            "kernels": s.core.kernels.name,
            "settings": asdict(s.core.settings),
            "options": dict(s.model.options.changed()),
            "prompt": prompt,
            "generated": generated,
        }
    )
    for row, (one, other) in enumerate(zip(expected, found, strict=True)):
        what = "generated token" if row >= len(expected) - generated else "row of the prompt"
        yield Pair(f"{what}, row {row} of {len(expected)}", one, other)


def _in_new_process(order: dict[str, Any]) -> np.ndarray:
    """What `dgpp.lab.claims.restarted` computes for `order` in a process of its own, without any compilation cache."""
    root = str(Path(dgpp.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "logits.npy"
        command = [sys.executable, "-m", "dgpp.lab.claims.restarted", str(result)]
        done = subprocess.run(
            command, input=json.dumps(order), env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"the second process ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")
        logits: np.ndarray = np.load(result)
    return logits


CLAIM = Claim("restart", _plan)
