"""Constrained decoding (spec/api.md §7.2, §7.3, §8).

`parse_response_format` reads the request's field, a `Plan` says what an answer must keep to, and a `Compiler` makes
constraints of it, off the path of the requests that are being served.
"""

from dgpp.text.constraints.compile import Compiler, compile
from dgpp.text.constraints.errors import CompilerBusy, ConstraintFailed, GrammarError
from dgpp.text.constraints.limits import DEFAULT_LIMITS, Limits
from dgpp.text.constraints.plan import Plan, Thinking, Tools
from dgpp.text.constraints.response_format import ResponseFormat, parse_response_format
from dgpp.text.constraints.vocabulary import TokenVocabulary

__all__ = [
    "DEFAULT_LIMITS",
    "Compiler",
    "CompilerBusy",
    "ConstraintFailed",
    "GrammarError",
    "Limits",
    "Plan",
    "ResponseFormat",
    "Thinking",
    "TokenVocabulary",
    "Tools",
    "compile",
    "parse_response_format",
]
