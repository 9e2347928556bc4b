"""POST /v1/completions as a typed object (spec/api.md §12)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dgpp.serve.errors import INVALID, UNSUPPORTED_PARAMETER, ApiError
from dgpp.serve.requests import decoding
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.common import (
    CACHE_SALT,
    MODEL,
    NO_PART,
    PREFIX_CACHE,
    USER,
    read_least,
    read_model,
    refuse_duplicate,
    required,
)
from dgpp.serve.requests.decoding import Decoding, read_decoding
from dgpp.serve.requests.fields import Field, Flag, Integer, Refused, Shaped
from dgpp.serve.requests.output import RESPONSE_FORMAT, read_format
from dgpp.serve.requests.served import Served
from dgpp.serve.requests.stream import STREAM_FIELDS, StreamOptions, read_stream
from dgpp.text.constraints import ResponseFormat


@dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions: `prompt` is continued as it is, without a template. With `echo` it stands before the
    answer; `best_of` answers are generated, of which the likeliest `decoding.n` are returned."""

    model: str
    prompt: str
    decoding: Decoding
    stream: StreamOptions | None = None
    echo: bool = False
    best_of: int | None = None
    format: ResponseFormat = field(default_factory=ResponseFormat)


NO_COMPLETION = tuple(
    Refused(name, NO_PART, UNSUPPORTED_PARAMETER) for name in ("suffix", "top_logprobs", "tools", "tool_choice")
)


def _prompt(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ApiError(INVALID, "prompt must be a non-empty string.", "prompt")
    return value


PROMPT = Shaped[str]("prompt", "The text to continue.", {"type": "string", "minLength": 1}, _prompt, "")
ECHO = Flag("echo", "Whether the prompt stands before the answer.")
BEST_OF = Integer(
    "best_of", "Answers to generate; the n likeliest are returned. Not in a stream.", 1, decoding.MAX_CHOICES
)

COMPLETION_FIELDS: tuple[Field, ...] = (
    MODEL,
    *NO_COMPLETION,
    USER,
    *decoding.LENGTH,
    *STREAM_FIELDS,
    *(PREFIX_CACHE, CACHE_SALT),
    *decoding.SAMPLING,
    *(decoding.LEGACY_LOGPROBS, decoding.N, decoding.STOP, decoding.LOGIT_BIAS),
    *(PROMPT, ECHO, BEST_OF, RESPONSE_FORMAT),
)
"""Every field of a completion request that is looked at, in the order in which they are judged."""


def parse_completion(body: JsonObject, served: Served) -> CompletionRequest:
    """The completion request in `body`. Raises ApiError."""
    model = read_model(body, served)
    refuse_duplicate(body)
    for refused in NO_COMPLETION:
        refused.read(body)
    USER.read(body)
    limit = decoding.MAX_TOKENS.read(body)
    least = read_least(body, limit)
    ignore_eos = decoding.IGNORE_EOS.read(body)
    stream = read_stream(body)
    PREFIX_CACHE.read(body)
    CACHE_SALT.read(body)
    drawing = read_decoding(body, decoding.LEGACY_LOGPROBS.read, served.vocab_size)
    prompt = required(PROMPT, body)
    echo = ECHO.read(body)
    if echo and drawing.logprobs is not None:
        raise ApiError(UNSUPPORTED_PARAMETER, "echo cannot be had with logprobs: only the answer has them.", "echo")
    best_of = BEST_OF.read(body)
    if best_of is not None and best_of < drawing.n:
        raise ApiError(INVALID, f"best_of must be at least n, which is {drawing.n}.", "best_of")
    if best_of is not None and best_of > drawing.n and stream is not None:
        raise ApiError(INVALID, "best_of above n cannot be streamed.", "best_of")
    return CompletionRequest(
        model,
        prompt,
        replace(drawing, max_tokens=limit, min_tokens=least, ignore_eos=ignore_eos),
        stream,
        echo,
        best_of,
        read_format(body, served.constrains),
    )
