"""How the host chooses a token from logits: the exact sampler of spec E-8, in NumPy, the same bits on every machine."""

from __future__ import annotations

from dgpp.engine.sampler.candidates import Candidates
from dgpp.engine.sampler.sampler import Choice, LogitsError, Sampler
from dgpp.engine.sampler.settings import is_greedy, needs_logits, validate

__all__ = ["Candidates", "Choice", "LogitsError", "Sampler", "is_greedy", "needs_logits", "validate"]
