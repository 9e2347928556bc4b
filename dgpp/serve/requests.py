"""Requests as typed objects, parsed at the edge in the contract's order: the first failing field is the one named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dgpp.serve import decoding
from dgpp.serve.body import JsonObject
from dgpp.serve.decoding import Decoding, read_decoding, read_token_limit
from dgpp.serve.errors import INVALID, INVALID_PARAMETER, MODEL_NOT_FOUND, UNSUPPORTED_PARAMETER, ApiError
from dgpp.serve.fields import INT32_MAX, Body, Field, Flag, Integer, Refused, Shaped, StringMap, Text, nullable
from dgpp.serve.output_fields import (
    OUTPUT_FIELDS,
    RESPONSE_FORMAT,
    Output,
    read_format,
    read_output,
    refuse_unconstrained,
)
from dgpp.serve.stream_options import STREAM_FIELDS, StreamOptions, read_stream
from dgpp.serve.template_kwargs import (
    CHAT_TEMPLATE_KWARGS,
    REASONING_EFFORT,
    Controls,
    read_effort,
    read_template_kwargs,
    together,
)
from dgpp.text.constraints import ResponseFormat
from dgpp.text.tools import Dialect

MAX_BEST_OF = decoding.MAX_CHOICES


@dataclass(frozen=True)
class Served:
    """What parsing needs to know of the model: the names it answers to, its number of token ids, what its chat template
    reads of a request, how it writes tool calls (None: not at all), and whether the engine masks tokens."""

    names: tuple[str, ...]
    vocab_size: int
    controls: Controls = field(default_factory=Controls)
    dialect: Dialect | None = None
    constrains: bool = True


@dataclass(frozen=True)
class ChatRequest:
    """POST /v1/chat/completions. `messages` is as sent; `stream` is None for an answer in one piece.

    `continues` says that the last message is the beginning of the answer; `thinking_budget` is the most reasoning
    tokens, None for any number.
    """

    model: str
    messages: list[Any]
    decoding: Decoding
    stream: StreamOptions | None = None
    service_tier: bool = False  # a tier was asked for, so the answer names one
    metadata: dict[str, str] | None = None
    template_variables: dict[str, Any] = field(default_factory=dict)
    output: Output = field(default_factory=Output)
    continues: bool = False
    thinking_budget: int | None = None


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


# --- the fields of both endpoints -------------------------------------------------------------------------------------

MODEL = Shaped[str]("model", "A name under which the model is served.", {"type": "string"}, str, "")
USER = Text("user", "Accepted, without effect.", kind=INVALID_PARAMETER)
PREFIX_CACHE = Flag("prefix_cache", "Extension: false keeps the request out of the prefix cache.", True, null=False)
CACHE_SALT = Text("cache_salt", "Extension: requests share cached prefixes only under the same salt.")
IGNORE_EOS = decoding.IGNORE_EOS


# --- chat -------------------------------------------------------------------------------------------------------------

_LATER = "it is no part of this server; leave it out."
UNSUPPORTED = (
    *(
        Refused(name, _LATER, UNSUPPORTED_PARAMETER, always=True)
        for name in ("web_search_options", "functions", "function_call", "prompt_cache_options")
    ),
    *(
        Refused(name, _LATER, UNSUPPORTED_PARAMETER)
        for name in (*("audio", "prediction", "moderation", "prompt_cache_key", "prompt_cache_retention", "verbosity"),)
    ),
)


def _store(value: Any) -> None:
    if not isinstance(value, bool):
        raise ApiError(INVALID_PARAMETER, "store must be true or false.", "store")
    if value:
        raise ApiError(UNSUPPORTED_PARAMETER, "store is not supported: answers are not kept.", "store")


def _tier(value: Any) -> bool:
    if value not in ("auto", "default"):
        raise ApiError(UNSUPPORTED_PARAMETER, 'service_tier must be "auto" or "default".', "service_tier")
    return True


def _modalities(value: Any) -> None:
    if value != ["text"]:
        raise ApiError(UNSUPPORTED_PARAMETER, 'modalities must be ["text"].', "modalities")


def _messages(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ApiError(INVALID, "messages must be a non-empty array.", "messages")
    return value


_CONTENT = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]}
_ROLES = ["system", "developer", "user", "assistant", "tool"]
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": {"enum": _ROLES}, "content": _CONTENT},
}
STORE = Shaped[None]("store", "Only false: answers are not kept.", nullable({"const": False}), _store, None)
SERVICE_TIER = Shaped[bool](
    "service_tier",
    "If given, the answer names the tier default.",
    nullable({"enum": ["auto", "default"]}),
    _tier,
    False,
)
MODALITIES = Shaped[None]("modalities", "Text only.", nullable({"const": ["text"]}), _modalities, None)
SAFETY_IDENTIFIER = Text("safety_identifier", "Accepted, without effect.", 64, INVALID_PARAMETER)
METADATA = StringMap("metadata", "Returned with an answer in one piece.", entries=16, key=64, text=512)
MESSAGES = Shaped[list[Any]](
    "messages", "The conversation.", {"type": "array", "items": _MESSAGE, "minItems": 1}, _messages, []
)
CONTINUE_FINAL_MESSAGE = Flag(
    "continue_final_message", "Extension: the answer goes on where the last message, an assistant's, ends."
)
THINKING_BUDGET = Integer("thinking_budget", "Extension: most tokens of reasoning; the answer follows.", 0, INT32_MAX)

CHAT_FIELDS: tuple[Field, ...] = (
    MODEL,
    *UNSUPPORTED,
    *(STORE, SERVICE_TIER, MODALITIES, USER, SAFETY_IDENTIFIER, METADATA),
    *(decoding.MAX_TOKENS, decoding.MAX_COMPLETION_TOKENS, decoding.MIN_TOKENS, IGNORE_EOS),
    *STREAM_FIELDS,
    *(PREFIX_CACHE, CACHE_SALT),
    *decoding.SAMPLING,
    *(decoding.LOGPROBS, decoding.TOP_LOGPROBS, decoding.N, decoding.STOP, decoding.LOGIT_BIAS),
    *(MESSAGES, CONTINUE_FINAL_MESSAGE),
    *OUTPUT_FIELDS,
    *(THINKING_BUDGET, REASONING_EFFORT, CHAT_TEMPLATE_KWARGS),
)
"""Every field of a chat request that is looked at, in the order in which they are judged."""


def parse_chat(body: JsonObject, served: Served) -> ChatRequest:
    """The chat request in `body`. Raises ApiError."""
    model = _model(body, served)
    for refused in UNSUPPORTED:
        refused.read(body)
    _refuse_duplicate(body)
    STORE.read(body)
    service_tier = SERVICE_TIER.read(body)
    MODALITIES.read(body)
    USER.read(body)
    SAFETY_IDENTIFIER.read(body)
    metadata = METADATA.read(body)
    limit = read_token_limit(body, decoding.MAX_TOKENS, decoding.MAX_COMPLETION_TOKENS)
    least = _least(body, limit)
    ignore_eos = IGNORE_EOS.read(body)
    stream = read_stream(body)
    PREFIX_CACHE.read(body)
    CACHE_SALT.read(body)
    drawing = read_decoding(body, _chat_logprobs, served.vocab_size)
    messages = _present(MESSAGES, body, _messages)
    continues = CONTINUE_FINAL_MESSAGE.read(body)
    output = read_output(body, served.dialect, served.constrains)
    thinking_budget = THINKING_BUDGET.read(body)
    if thinking_budget is not None:
        refuse_unconstrained(THINKING_BUDGET.name, served.constrains)
    effort = read_effort(body, served.controls)
    variables = together(read_template_kwargs(body, served.controls), effort)
    return ChatRequest(
        model,
        messages,
        replace(drawing, max_tokens=limit, min_tokens=least, ignore_eos=ignore_eos),
        stream,
        service_tier,
        metadata,
        variables,
        output,
        continues,
        thinking_budget,
    )


# --- completions ------------------------------------------------------------------------------------------------------

NO_COMPLETION = tuple(
    Refused(name, _LATER, UNSUPPORTED_PARAMETER) for name in ("suffix", "top_logprobs", "tools", "tool_choice")
)


def _prompt(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ApiError(INVALID, "prompt must be a non-empty string.", "prompt")
    return value


PROMPT = Shaped[str]("prompt", "The text to continue.", {"type": "string", "minLength": 1}, _prompt, "")
ECHO = Flag("echo", "Whether the prompt stands before the answer.")
BEST_OF = Integer("best_of", "Answers to generate; the n likeliest are returned. Not in a stream.", 1, MAX_BEST_OF)

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
    model = _model(body, served)
    _refuse_duplicate(body)
    for refused in NO_COMPLETION:
        refused.read(body)
    USER.read(body)
    limit = decoding.MAX_TOKENS.read(body)
    least = _least(body, limit)
    ignore_eos = IGNORE_EOS.read(body)
    stream = read_stream(body)
    PREFIX_CACHE.read(body)
    CACHE_SALT.read(body)
    drawing = read_decoding(body, decoding.LEGACY_LOGPROBS.read, served.vocab_size)
    prompt = _present(PROMPT, body, _prompt)
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


# --- shared -----------------------------------------------------------------------------------------------------------


def _model(body: Body, served: Served) -> str:
    model = body.get(MODEL.name)
    if not isinstance(model, str):
        raise ApiError(INVALID, "model must be a string.", "model")
    if model not in served.names:
        raise ApiError(
            MODEL_NOT_FOUND, f"The model {model!r} is not served here; this is {', '.join(served.names)}.", "model"
        )
    return model


def _refuse_duplicate(body: JsonObject) -> None:
    if body.duplicate is not None:
        raise ApiError(INVALID_PARAMETER, f"{body.duplicate} is given twice.", body.duplicate)


def _least(body: Body, limit: int | None) -> int:
    least = decoding.MIN_TOKENS.read(body) or 0
    if limit is not None and least > limit:
        raise ApiError(INVALID, f"min_tokens must be at most {limit}, the most tokens of the answer.", "min_tokens")
    return least


def _present(field: Shaped[Any], body: Body, take: Any) -> Any:
    """The value of a field that must be there: a missing one is refused as null is."""
    return take(body.get(field.name))


def _chat_logprobs(body: Mapping[str, Any]) -> int | None:
    """None without logprobs, else the number of alternatives."""
    logprobs = decoding.LOGPROBS.read(body)
    top = decoding.TOP_LOGPROBS.read(body)
    if top is not None and not logprobs:
        raise ApiError(INVALID, "top_logprobs needs logprobs: true.", "top_logprobs")
    return (top or 0) if logprobs else None
