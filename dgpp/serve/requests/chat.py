"""POST /v1/chat/completions as a typed object, parsed in the contract's order: the first failing field is the one
named (spec/api.md §2, §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dgpp.serve.errors import INVALID, INVALID_PARAMETER, UNSUPPORTED_PARAMETER, ApiError
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
from dgpp.serve.requests.decoding import Decoding, read_decoding, read_token_limit
from dgpp.serve.requests.fields import INT32_MAX, Field, Flag, Integer, Refused, Shaped, StringMap, Text, nullable
from dgpp.serve.requests.output import OUTPUT_FIELDS, Output, read_output, refuse_unconstrained
from dgpp.serve.requests.served import Served
from dgpp.serve.requests.stream import STREAM_FIELDS, StreamOptions, read_stream
from dgpp.serve.requests.thinking import (
    CHAT_TEMPLATE_KWARGS,
    REASONING_EFFORT,
    read_effort,
    read_template_kwargs,
    together,
)


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


UNSUPPORTED = (
    *(
        Refused(name, NO_PART, UNSUPPORTED_PARAMETER, always=True)
        for name in ("web_search_options", "functions", "function_call", "prompt_cache_options")
    ),
    *(
        Refused(name, NO_PART, UNSUPPORTED_PARAMETER)
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
    *(decoding.MAX_TOKENS, decoding.MAX_COMPLETION_TOKENS, decoding.MIN_TOKENS, decoding.IGNORE_EOS),
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
    model = read_model(body, served)
    for refused in UNSUPPORTED:
        refused.read(body)
    refuse_duplicate(body)
    STORE.read(body)
    service_tier = SERVICE_TIER.read(body)
    MODALITIES.read(body)
    USER.read(body)
    SAFETY_IDENTIFIER.read(body)
    metadata = METADATA.read(body)
    limit = read_token_limit(body, decoding.MAX_TOKENS, decoding.MAX_COMPLETION_TOKENS)
    least = read_least(body, limit)
    ignore_eos = decoding.IGNORE_EOS.read(body)
    stream = read_stream(body)
    PREFIX_CACHE.read(body)
    CACHE_SALT.read(body)
    drawing = read_decoding(body, _chat_logprobs, served.vocab_size)
    messages = required(MESSAGES, body)
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


def _chat_logprobs(body: Mapping[str, Any]) -> int | None:
    """None without logprobs, else the number of alternatives."""
    logprobs = decoding.LOGPROBS.read(body)
    top = decoding.TOP_LOGPROBS.read(body)
    if top is not None and not logprobs:
        raise ApiError(INVALID, "top_logprobs needs logprobs: true.", "top_logprobs")
    return (top or 0) if logprobs else None
