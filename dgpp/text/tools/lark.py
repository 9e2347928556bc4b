"""Pieces of grammar text in llguidance's flavour of Lark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import llguidance

from dgpp.text.tools.marks import Marks

Value = Callable[[Mapping[str, Any] | None, bool], str | None]
"""The rule text for a JSON value of a schema (None: any), strictly or as far as it goes; None: no rule, any text."""

ANY = "/(?s:.*)/"


def dumps(value: Any) -> str:
    """A value as templates write it."""
    return json.dumps(value, ensure_ascii=False)


def quoted(text: str) -> str:
    """A literal; nothing for no text."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def regex(pattern: str) -> str:
    """A terminal's body: the texts that match the whole of a regular expression of Rust's syntax."""
    return f"/{llguidance.regex_to_lark(pattern, '')}/"


def sequence(text: str, marks: Marks) -> str:
    """A text with marks as literals and control tokens; the empty string for no text."""
    parts = [""]
    for character in text:
        spelling = marks.spelling.get(ord(character))
        if spelling is None:
            parts[-1] += character
        else:
            parts[-1:] = [quoted(parts[-1]), f"<[{marks.id(spelling)}]>", ""]
    parts[-1] = quoted(parts[-1])
    return " ".join(filter(None, parts))


def before_mark(text: str, marks: Marks) -> tuple[str, str]:
    """The plain text that `text` begins with, and the rest, which is empty or begins with a mark."""
    at = next((at for at, character in enumerate(text) if ord(character) in marks.spelling), len(text))
    return text[:at], text[at:]


def without(texts: Iterable[str]) -> str:
    """A terminal's body: text that holds none of these."""
    texts = set(texts)
    smallest = sorted(text for text in texts if not any(other != text and other in text for other in texts))
    if not smallest:
        return ANY
    return f"{ANY} & ~({ANY} ({' | '.join(map(quoted, smallest))}) {ANY})"


def repeated(rule: str, separator: str, least: int, most: int | None) -> str:
    """From `least` (at least one) to `most` of `rule`, with `separator` between them."""
    more = f"({separator} {rule})" if separator else rule
    if most == 1:
        return rule
    return f"{rule} {more}{{{max(least, 1) - 1},{'' if most is None else most - 1}}}"
