"""What can go wrong with a constraint: before the answer begins, or within it."""

from __future__ import annotations


class GrammarError(ValueError):
    """A schema, grammar or plan that cannot be enforced (spec/api.md §2, §8): a 400.

    `pointer` is the request's path of what is at fault, `code` the wire code ("unsupported_schema",
    "invalid_grammar"; None for a field of a wrong type), `message` what to do about it.
    """

    def __init__(self, message: str, pointer: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.code = code


class CompilerBusy(RuntimeError):
    """Too many constraints are being compiled already: a 503, to be tried again."""


class ConstraintFailed(RuntimeError):
    """A constraint that can say nothing more about its sequence: a step went over its limits, or a token was accepted
    that is not allowed. The sequence must end; every later call raises the same."""
