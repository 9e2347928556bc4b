"""Which ids one request may be given next: its constraint, and no end before its least length."""

from __future__ import annotations

import numpy as np

from dgpp.engine.request import Request


class ConstraintError(Exception):
    """A constraint that cannot go on; it ends its own request and nobody else's."""


class Allowed:
    """The mask of one request, asked before and told after each of its tokens. Raises ConstraintError from `mask` and
    `accept` when the constraint fails, with its error as the cause."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self._constraint = None if request.constraint is None else request.constraint()
        self._least = 0 if request.ignore_eos else request.min_tokens
        self._eos = sorted(id for id in request.eos if id < vocab_size)
        self._vocab_size = vocab_size
        self._count = 0

    @staticmethod
    def needed(request: Request) -> bool:
        """Whether `request` is ever denied an id."""
        return request.constraint is not None or (request.min_tokens > 0 and not request.ignore_eos)

    def mask(self) -> np.ndarray | None:
        """bool [V]; None when every id may follow."""
        try:
            allowed = None if self._constraint is None else self._constraint.allowed()
        except Exception as error:
            raise ConstraintError("the constraint has no next token") from error
        if self._count >= self._least:
            return allowed
        longer = np.ones(self._vocab_size, bool) if allowed is None else allowed.copy()
        longer[self._eos] = False
        # A constraint that is complete leaves only the end, whatever the least length.
        return longer if allowed is None or longer.any() else allowed

    def accept(self, token: int) -> None:
        """Goes on past `token`."""
        self._count += 1
        if self._constraint is None:
            return
        try:
            self._constraint.accept(token)
        except Exception as error:
            raise ConstraintError("the constraint does not take the token") from error
