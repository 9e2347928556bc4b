"""Requests as typed objects, parsed at the edge in the contract's order: the first failing field is the one named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dgpp.serve import fields
from dgpp.serve.body import JsonObject
from dgpp.serve.decoding import (
    Decoding,
    read_logit_bias,
    read_n,
    read_sampling,
    read_stop,
    read_token_limit,
)
from dgpp.serve.errors import (
    INVALID,
    INVALID_PARAMETER,
    MODEL_NOT_FOUND,
    UNSUPPORTED_PARAMETER,
    ApiError,
)
from dgpp.serve.template_kwargs import read_template_kwargs

REFUSED_WHEN_PRESENT = ("web_search_options", "functions", "function_call", "prompt_cache_options")
REFUSED_UNLESS_NULL = (
    "audio",
    "prediction",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_retention",
    "verbosity",
)
CHAT_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "reasoning_effort": (),
    "continue_final_message": (False,),
    "min_tokens": (0,),
}
"""Chat fields that this server does not act on, with the values that ask for nothing; any other value would change
the answer, so it is refused rather than ignored."""
COMPLETION_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": (),
    "best_of": (1,),
    "top_logprobs": (),
    "min_tokens": (0,),
}


@dataclass(frozen=True)
class Served:
    """What parsing needs to know of the model: the names it answers to, its number of token ids, and the variables that
    its chat template reads."""

    names: tuple[str, ...]
    vocab_size: int
    template_reads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StreamOptions:
    """How a streamed answer is sent. `ping_interval` is in seconds, -1 for no comments, None as the server does."""

    include_usage: bool = False
    include_obfuscation: bool = True
    ping_interval: int | None = None


@dataclass(frozen=True)
class ChatRequest:
    """POST /v1/chat/completions. `messages` is as sent; `stream` is None for an answer in one piece."""

    model: str
    messages: list[Any]
    decoding: Decoding
    stream: StreamOptions | None = None
    service_tier: bool = False  # a tier was asked for, so the answer names one
    metadata: dict[str, str] | None = None
    template_variables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions: `prompt` is continued as it is, without a template."""

    model: str
    prompt: str
    decoding: Decoding
    stream: StreamOptions | None = None


def parse_chat(body: JsonObject, served: Served) -> ChatRequest:
    """The chat request in `body`. Raises ApiError."""
    model = _model(body, served)
    _refuse_unsupported(body)
    service_tier = _accounting_fields(body)
    limit = read_token_limit(body, "max_tokens", "max_completion_tokens")
    ignore_eos = fields.boolean(body, "ignore_eos", False, null=False)
    stream = _stream(body)
    fields.boolean(body, "prefix_cache", True, null=False)
    decoding = replace(
        read_sampling(body),
        max_tokens=limit,
        ignore_eos=ignore_eos,
        logprobs=_chat_logprobs(body),
        n=read_n(body),
        stop=read_stop(body),
        logit_bias=read_logit_bias(body, served.vocab_size),
    )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(INVALID, "messages must be a non-empty array.", "messages")
    _refuse_effects(body, CHAT_WITHOUT_EFFECT)
    variables = read_template_kwargs(body, served.template_reads)
    return ChatRequest(model, messages, decoding, stream, service_tier, body.get("metadata"), variables)


def parse_completion(body: JsonObject, served: Served) -> CompletionRequest:
    """The completion request in `body`. Raises ApiError."""
    model = _model(body, served)
    _refuse_duplicate(body)
    _refuse_effects(body, COMPLETION_WITHOUT_EFFECT)
    fields.string(body, "user", kind=INVALID_PARAMETER)
    limit = read_token_limit(body, "max_tokens")
    ignore_eos = fields.boolean(body, "ignore_eos", False, null=False)
    stream = _stream(body)
    fields.boolean(body, "prefix_cache", True, null=False)
    decoding = replace(
        read_sampling(body),
        max_tokens=limit,
        ignore_eos=ignore_eos,
        logprobs=fields.integer(body, "logprobs", 0, 5),
        n=read_n(body),
        stop=read_stop(body),
        logit_bias=read_logit_bias(body, served.vocab_size),
    )
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise ApiError(INVALID, "prompt must be a non-empty string.", "prompt")
    return CompletionRequest(model, prompt, decoding, stream)


def _model(body: Mapping[str, Any], served: Served) -> str:
    model = body.get("model")
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


def _refuse_unsupported(body: JsonObject) -> None:
    """Fields that are no part of this server, and keys given twice."""
    for key in (*REFUSED_WHEN_PRESENT, *REFUSED_UNLESS_NULL):
        if key in body and (key in REFUSED_WHEN_PRESENT or body[key] is not None):
            raise ApiError(UNSUPPORTED_PARAMETER, f"{key} is not supported.", key)
    _refuse_duplicate(body)


def _refuse_effects(body: Mapping[str, Any], without_effect: Mapping[str, tuple[Any, ...]]) -> None:
    for key, harmless in without_effect.items():
        value = body.get(key)
        # 1 and true are equal in Python, but not on the wire.
        if value is not None and not any(
            value == item and isinstance(value, bool) == isinstance(item, bool) for item in harmless
        ):
            raise ApiError(UNSUPPORTED_PARAMETER, f"This value of {key} is not supported.", key)


def _accounting_fields(body: Mapping[str, Any]) -> bool:
    """Checks `store`, `service_tier`, `modalities`, `user`, `safety_identifier` and `metadata`; returns whether a
    service tier was named."""
    store = body.get("store")
    if store is not None and not isinstance(store, bool):
        raise ApiError(INVALID_PARAMETER, "store must be true or false.", "store")
    if store:
        raise ApiError(UNSUPPORTED_PARAMETER, "store is not supported: answers are not kept.", "store")
    tier = body.get("service_tier")
    if tier not in (None, "auto", "default"):
        raise ApiError(UNSUPPORTED_PARAMETER, 'service_tier must be "auto" or "default".', "service_tier")
    if body.get("modalities") not in (None, ["text"]):
        raise ApiError(UNSUPPORTED_PARAMETER, 'modalities must be ["text"].', "modalities")
    fields.string(body, "user", kind=INVALID_PARAMETER)
    fields.string(body, "safety_identifier", 64, kind=INVALID_PARAMETER)
    fields.string_map(body, "metadata", entries=16, name=64, text=512)
    return tier is not None


def _stream(body: Mapping[str, Any]) -> StreamOptions | None:
    """`stream`, `stream_options` and `sse_ping_interval`, which only a stream can have."""
    stream = fields.boolean(body, "stream", False)
    options = body.get("stream_options")
    if options is not None and not (isinstance(options, dict) and stream):
        raise ApiError(INVALID, "stream_options must be an object, and needs stream: true.", "stream_options")
    for key in options or {}:
        if key not in ("include_usage", "include_obfuscation"):
            raise ApiError(UNSUPPORTED_PARAMETER, f"stream_options.{key} is not supported.", f"stream_options.{key}")
    usage, obfuscation = (
        fields.boolean(options or {}, key, default, null=False, prefix="stream_options.")
        for key, default in (("include_usage", False), ("include_obfuscation", True))
    )
    interval = body.get("sse_ping_interval")
    if "sse_ping_interval" in body:
        if (
            not isinstance(interval, int)
            or isinstance(interval, bool)
            or not (interval == -1 or 1 <= interval <= fields.INT32_MAX)
        ):
            raise ApiError(
                INVALID, f"sse_ping_interval must be -1 or between 1 and {fields.INT32_MAX}.", "sse_ping_interval"
            )
        if not stream:
            raise ApiError(INVALID, "sse_ping_interval needs stream: true.", "sse_ping_interval")
    return StreamOptions(usage, obfuscation, interval) if stream else None


def _chat_logprobs(body: Mapping[str, Any]) -> int | None:
    """None without logprobs, else the number of alternatives."""
    logprobs = fields.boolean(body, "logprobs", False)
    top = fields.integer(body, "top_logprobs", 0, 20)
    if top is not None and not logprobs:
        raise ApiError(INVALID, "top_logprobs needs logprobs: true.", "top_logprobs")
    return (top or 0) if logprobs else None
