"""A prompt as text of two kinds: control, in which special tokens are meant, and typed, in which nothing is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """A stretch of a prompt. Only in a `control` one do the texts of special tokens become these tokens."""

    text: str
    control: bool = False


def joined(segments: Iterable[Segment]) -> str:
    """The prompt as one string, for people to read."""
    return "".join(segment.text for segment in segments)
