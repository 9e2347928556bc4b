"""A schema that was checked, and how it is handed to the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llguidance

from dgpp.text.constraints.errors import GrammarError
from dgpp.text.constraints.schema_report import Place


@dataclass(frozen=True)
class CheckedSchema:
    """A schema as the library gets it. `parts` are the patterns and bounds in it, each as a schema of its own with
    its place, to find out which of them the library cannot compile."""

    text: str
    at: Place
    parts: tuple[tuple[Place, str], ...] = ()


def value_grammar(schema: CheckedSchema) -> dict[str, Any]:
    """A checked schema as the library's `json_schema`."""
    result: dict[str, Any] = json.loads(schema.text)
    return result


def blamed(schema: CheckedSchema, reason: str, verify: Callable[[str], object]) -> GrammarError:
    """The error for a checked schema that does not compile: it names the first part that does not by itself."""
    for place, text in schema.parts:
        try:
            verify(llguidance.LLMatcher.grammar_from_json_schema(text))
        except ValueError as error:
            return place.refused(f"cannot be enforced: {_plain(str(error))}")
    return schema.at.refused(f"cannot be enforced: {_plain(reason)}")


def _plain(reason: str) -> str:
    """The first line of the library's words, cut."""
    return reason.strip().split("\n")[0][:200]


def as_text(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
