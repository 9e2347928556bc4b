"""What a schema asks of a string's text, as a terminal of a grammar: formats that write strings as they are enforce
patterns, formats and lengths of strict tools with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.text.constraints.schema_leaves import strings
from dgpp.text.constraints.schema_report import Place
from dgpp.text.tools.lark import ANY, regex


def text_terminal(schema: Mapping[str, Any]) -> str | None:
    """A terminal's body: the texts that a schema of strings allows; None where it allows all.

    Alternatives (`anyOf`, `oneOf`, `allOf`) are not looked into. Raises GrammarError for a pattern or format that is
    not supported.
    """
    if any(keyword in schema for keyword in ("anyOf", "oneOf", "allOf")):
        return None
    found = strings(schema, {"string"}, Place("tools"))
    patterns = [found.get("pattern"), *(other["pattern"] for other in found.get("allOf", ()))]
    terms = [_searched(pattern) for pattern in patterns if pattern is not None]
    if "minLength" in found or "maxLength" in found:
        terms.append(f"/(?s:.){{{found.get('minLength', 0)},{found.get('maxLength', '')}}}/")
    return " & ".join(terms) or None


def _searched(pattern: str) -> str:
    """A regular expression that may match anywhere in a text, as a terminal of the whole text.

    Terminals match whole texts, and know anchors only at their ends.
    """
    parts: list[str] = []
    for option in _alternatives(pattern):
        whole = option.removeprefix("^").removesuffix("$") if _ends_anchored(option) else option.removeprefix("^")
        before = "" if option.startswith("^") else "(?s:.*)"
        after = "" if _ends_anchored(option) else "(?s:.*)"
        parts.append(f"{before}(?:{whole}){after}")
    return f"({ANY} & {regex('|'.join(parts))})"


def _ends_anchored(option: str) -> bool:
    """Whether it ends in an anchor, and not in an escaped dollar sign."""
    backslashes = len(option) - 1 - len(option[:-1].rstrip("\\"))
    return option.endswith("$") and backslashes % 2 == 0


def _alternatives(pattern: str) -> list[str]:
    """The parts between the bars that are in no group and no class."""
    parts = [""]
    depth = 0
    in_class = False
    escaped = False
    for character in pattern:
        if character == "|" and not (escaped or in_class or depth):
            parts.append("")
            continue
        parts[-1] += character
        if escaped or character == "\\":
            escaped = not escaped
        elif in_class:
            in_class = character != "]"
        else:
            in_class = character == "["
            depth += (character == "(") - (character == ")")
    return parts
