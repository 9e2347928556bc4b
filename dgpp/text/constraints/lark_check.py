"""What of Lark a request may use (spec/api.md §8.1): the rest of the library's dialect would get round the rules for
schemas and control tokens, or is not enforced at every token."""

from __future__ import annotations

import re

import llguidance

from dgpp.text.constraints.errors import GrammarError

_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"i?)
    | (?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    | (?P<comment>(?:\#|//)[^\n]*)
    | (?P<directive>%[a-zA-Z_]*)
    | (?P<special><[^>\n]*>)
    | (?P<options>^[ \t]*[?!]?[A-Za-z_][\w\-]*\[[^\]\n]*\][ \t]*:)
    | (?P<priority>^[ \t]*[?!]?[A-Za-z_][\w\-]*\.-?\d+[ \t]*:)
    | (?P<template>[A-Za-z_][\w\-]*\{[ \t]*[A-Za-z_])
    | (?P<reference>@)
    | (?P<other>.|\n)""",
    re.VERBOSE | re.MULTILINE,
)
_DIRECTIVES = ("%ignore", "%import")
_REFUSED = {
    "special": "control tokens (<...>)",
    "options": "options of rules (name[...])",
    "priority": "priorities",
    "template": "templates",
    "reference": "references to other grammars (@name)",
}


def regex_lark(pattern: str) -> str:
    """A Lark grammar of the texts that match a whole regular expression (of Rust's syntax)."""
    return f"start: /{llguidance.regex_to_lark(pattern, '')}/"


def check_lark(text: str, at: str) -> None:
    """Raises GrammarError with code "invalid_grammar" naming what is used and not supported."""
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or ""
        if kind == "directive" and token[0] not in _DIRECTIVES:
            raise GrammarError(
                f"{at} uses {token[0]}; of the directives, only %ignore and %import are supported",
                at,
                "invalid_grammar",
            )
        if kind in _REFUSED:
            raise GrammarError(f"{at} uses {_REFUSED[kind]}, which is not supported", at, "invalid_grammar")
