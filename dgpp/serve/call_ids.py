"""Ids of tool calls (spec/api.md §6.1)."""

from __future__ import annotations

import hashlib


def call_id(turn: str, choice: int, index: int) -> str:
    """`call_` and 16 hexadecimal digits: one id for the call `index` of a choice of the turn with this id, whenever it
    is asked for, and another for every other call."""
    digest = hashlib.blake2b(f"{turn}/{choice}/{index}".encode(), digest_size=8)
    return f"call_{digest.hexdigest()}"
