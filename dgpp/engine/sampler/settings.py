"""Which sampling settings are valid, and which of them need more than the device's own pick (spec E-8.2)."""

from __future__ import annotations

import numpy as np

from dgpp.engine.request import Sampling

MIN_TEMPERATURE = 1e-5
"""Temperatures below this are greedy, like 0: logits divided by them could leave the range of float32."""

LARGEST = float(np.finfo(np.float32).max)


def is_greedy(sampling: Sampling) -> bool:
    """Whether the most likely token is taken and nothing is drawn."""
    return sampling.temperature < MIN_TEMPERATURE


def penalises(sampling: Sampling) -> bool:
    """Whether ids that occurred before have their logits changed."""
    penalties = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
    return penalties != (1, 0, 0)


def needs_logits(sampling: Sampling) -> bool:
    """False where the argmax of the raw logits, ties to the lower id, is the token and nothing else is asked for."""
    changed = penalises(sampling) or bool(sampling.logit_bias)
    return changed or not is_greedy(sampling) or sampling.logprobs is not None


def validate(sampling: Sampling, vocab_size: int) -> None:
    """Raises ValueError naming the first field that cannot be used. Every number counts as the float32 nearest to it.

    What is a server's limit (the range of a bias, the number of biases or of alternatives) is not tested here.
    """
    for field, valid, rule in (
        ("temperature", lambda value: value >= 0, "at least 0"),
        ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
        ("min_p", lambda value: 0 <= value <= 1, "from 0 to 1"),
        ("repetition_penalty", lambda value: value > 0, "above 0"),
        ("presence_penalty", lambda value: True, "a number"),
        ("frequency_penalty", lambda value: True, "a number"),
    ):
        value = getattr(sampling, field)
        if not (_finite(value) and valid(np.float32(value))):
            raise ValueError(f"{field} must be {rule} and finite as a float32, got {value}")
    if sampling.top_k < 0:
        raise ValueError(f"top_k must be at least 0 (0 is off), got {sampling.top_k}")
    if sampling.logprobs is not None and sampling.logprobs < 0:
        raise ValueError(f"logprobs must be None or at least 0, got {sampling.logprobs}")
    seen: set[int] = set()
    for token, bias in sampling.logit_bias:
        if not 0 <= token < vocab_size:
            raise ValueError(f"logit_bias names the id {token}, outside the vocabulary of {vocab_size}")
        if token in seen:
            raise ValueError(f"logit_bias names the id {token} twice")
        if not _finite(bias):
            raise ValueError(f"logit_bias of the id {token} must be finite as a float32, got {bias}")
        seen.add(token)


def _finite(value: float) -> bool:
    return abs(value) <= LARGEST  # False for NaN
