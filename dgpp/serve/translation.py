"""Other APIs as chat requests: where each field of a chat request came from, so that errors name what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dgpp.serve.errors import INVALID, UNSUPPORTED_PARAMETER, ApiError
from dgpp.serve.requests.body import JsonObject

EXTENSIONS = (
    *("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "logit_bias"),
    *("ignore_eos", "min_tokens", "prefix_cache", "cache_salt", "chat_template_kwargs", "sse_ping_interval"),
)
"""Chat fields that every API of this server takes under the same name."""


class Paths:
    """Chat paths such as `messages[2].content[0]`, and the paths that stand for them in the request as it was sent."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)

    def add(self, chat: str, sent: str) -> None:
        """`chat`, and every path below it without an entry of its own, was sent as `sent`."""
        self._paths[chat] = sent

    def sent(self, param: str) -> str:
        """The path of a chat param in the request as it was sent; the longest known part of it decides."""
        for end in sorted({len(param), *(at.start() for at in re.finditer(r"[.\[]", param))}, reverse=True):
            if param[:end] in self._paths:
                return self._paths[param[:end]] + param[end:]
        return param

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Lets ApiErrors pass with their param, and its mention in the message, as they were sent."""
        try:
            yield
        except ApiError as error:
            if error.param is None:
                raise
            sent = self.sent(error.param)
            message = re.sub(rf"(?<![\w.]){re.escape(error.param)}(?![\w])", lambda _: sent, error.message)
            raise ApiError(error.kind, message, sent) from None


def chat_body(fields: Mapping[str, Any], sent: JsonObject) -> JsonObject:
    """A chat body of the fields that are not None; a key that was sent twice is still known."""
    body = JsonObject((key, value) for key, value in fields.items() if value is not None)
    body.duplicate = sent.duplicate
    return body


def invalid(param: str, what: str) -> ApiError:
    """The 400 about a field: `param` and `what` it must be."""
    return ApiError(INVALID, f"{param} {what}.", param)


def unsupported(param: str, why: str = "is not supported") -> ApiError:
    """The 400 about a field that asks for something this server does not do."""
    return ApiError(UNSUPPORTED_PARAMETER, f"{param} {why}.", param)


def mapping(value: Any, param: str) -> dict[str, Any]:
    """`value`, which must be an object."""
    if not isinstance(value, dict):
        raise invalid(param, "must be an object")
    return value


def options(value: Any, param: str) -> dict[str, Any]:
    """`value`, which must be an object; an empty one for null."""
    return {} if value is None else mapping(value, param)


def array(value: Any, param: str) -> list[Any]:
    """`value`, which must be an array."""
    if not isinstance(value, list):
        raise invalid(param, "must be an array")
    return value


def text(value: Any, param: str) -> str:
    """`value`, which must be a string."""
    if not isinstance(value, str):
        raise invalid(param, "must be a string")
    return value
