"""The one way in which a message of a request can be wrong."""

from __future__ import annotations


class MessageError(ValueError):
    """A message that cannot be accepted: the field at fault, what is wrong, and the wire code of spec/api.md §2."""

    def __init__(self, param: str, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.message = message
        self.code = code
