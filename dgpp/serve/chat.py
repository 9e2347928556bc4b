"""POST /v1/chat/completions: a turn as chat completion objects, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flask import Blueprint, Response, request

from dgpp.serve.answers import answers, usage, wire_logprob
from dgpp.serve.call_ids import call_id
from dgpp.serve.replies import event_stream, json_reply, start
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.chat import ChatRequest, parse_chat
from dgpp.serve.service import Service
from dgpp.serve.sse import encode_event, obfuscated
from dgpp.serve.turn import Failed, Step, Turn
from dgpp.text.events import (
    Answer,
    CallArguments,
    CallOpened,
    Finished,
    LogprobDelta,
    LogprobEntry,
    TextDelta,
    ToolKind,
)

_DELTA_KEYS = {"content": "content", "reasoning": "reasoning_content"}


def blueprint(service: Service) -> Blueprint:
    """The route."""
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    def create() -> Response:
        chat = parse_chat(parse_body(request.get_data()), service.served)
        turn = start(service.chat, chat)
        if chat.stream is None:
            return json_reply(completion(turn, chat))
        encode = _encode_obfuscated if chat.stream.include_obfuscation else encode_event
        return event_stream(turn, chunks(turn, chat), service.ping_interval(chat.stream), encode)

    return routes


def completion(turn: Turn, chat: ChatRequest) -> dict[str, Any]:
    """The `chat.completion` object, once everything is generated. Raises ApiError when the engine fails."""
    choices = answers(turn)
    return {
        "id": turn.id,
        "object": "chat.completion",
        "created": turn.created,
        "model": turn.model,
        "system_fingerprint": None,
        "choices": [_choice(turn.id, index, answer, chat) for index, answer in enumerate(choices)],
        "usage": usage(turn, choices),
        **_tier(chat),
        **({} if chat.metadata is None else {"metadata": chat.metadata}),
    }


def chunks(turn: Turn, chat: ChatRequest) -> Iterator[dict[str, Any] | None]:
    """The `chat.completion.chunk` objects of a turn, in the contract's order; None when there was nothing to say.

    A choice opens with its role just before its first chunk, and after all choices with a lower index have opened.
    Log-probabilities follow the text that shows them in
    a chunk of their own. A failing turn ends with an error object instead of the chunks it owes.
    """
    assert chat.stream is not None
    opened = 0  # choices whose first chunk is out
    kinds: dict[tuple[int, int], ToolKind] = {}  # of the calls, by choice and place
    finished: list[Finished] = []
    for step in turn.events():
        if isinstance(step, Failed):
            yield step.error.body()
            return
        choices = _choices(turn.id, step, kinds) if step is not None else []
        if step is not None and choices and step.index >= opened:
            # The official client's stream helper grows its list of choices one index at a time.
            choices[:0] = [_delta(i, {"role": "assistant", "content": ""}) for i in range(opened, step.index + 1)]
            opened = step.index + 1
        for choice in choices:
            yield _chunk(turn, chat, [choice])
        if not choices:
            yield None
        if step is not None:
            finished += [event for event in step.events if isinstance(event, Finished)]
    if chat.stream.include_usage:
        yield _chunk(turn, chat, [], usage(turn, finished))


def _choice(id: str, index: int, answer: Answer, chat: ChatRequest) -> dict[str, Any]:
    content = None if answer.calls and not answer.content else answer.content
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call_id(id, index, place), "type": call.kind, **_called(call.kind, call.arguments, call.name)}
            for place, call in enumerate(answer.calls)
        ]
    message["refusal"] = None
    return {
        "index": index,
        "message": message,
        "logprobs": None if chat.decoding.logprobs is None else _logprobs(answer.logprobs),
        "finish_reason": answer.finish_reason,
    }


def _chunk(
    turn: Turn, chat: ChatRequest, choices: list[dict[str, Any]], totals: dict[str, Any] | None = None
) -> dict[str, Any]:
    assert chat.stream is not None
    return {
        "id": turn.id,
        "object": "chat.completion.chunk",
        "created": turn.created,
        "model": turn.model,
        "system_fingerprint": None,
        "choices": choices,
        **({"usage": totals} if chat.stream.include_usage else {}),
        **_tier(chat),
    }


def _choices(id: str, step: Step, kinds: dict[tuple[int, int], ToolKind]) -> list[dict[str, Any]]:
    """The `choices` entries of one step; `kinds` remembers those of the open calls."""
    choices: list[dict[str, Any]] = []
    for event in step.events:
        match event:
            case TextDelta():
                choices.append(_delta(step.index, {_DELTA_KEYS[event.field]: event.text}))
            case CallOpened():
                kinds[step.index, event.index] = event.kind
                head = {"id": call_id(id, step.index, event.index), "type": event.kind}
                choices.append(_call_delta(step.index, event.index, head | _called(event.kind, "", event.name)))
            case CallArguments():
                more = _called(kinds[step.index, event.index], event.text)
                choices.append(_call_delta(step.index, event.index, more))
            case LogprobDelta():
                choices.append(_delta(step.index, {}, logprobs=_logprobs(event.entries)))
            case Finished():
                choices.append(_delta(step.index, {}, finish_reason=event.reason))
    return choices


def _called(kind: ToolKind, text: str, name: str | None = None) -> dict[str, Any]:
    """The part of a call that says what is called, and with what."""
    named = {} if name is None else {"name": name}
    return {kind: {**named, "arguments" if kind == "function" else "input": text}}


def _call_delta(index: int, place: int, call: dict[str, Any]) -> dict[str, Any]:
    return _delta(index, {"tool_calls": [{"index": place, **call}]})


def _delta(
    index: int, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(entries: Iterable[LogprobEntry]) -> dict[str, Any]:
    return {
        "content": [
            {
                **_token(entry.token, entry.logprob, entry.data),
                "top_logprobs": [_token(top.token, top.logprob, top.data) for top in entry.top],
            }
            for entry in entries
        ],
        "refusal": None,
    }


def _token(token: str, logprob: float, data: bytes) -> dict[str, Any]:
    return {"token": token, "logprob": wire_logprob(logprob), "bytes": list(data)}


def _tier(chat: ChatRequest) -> dict[str, str]:
    return {"service_tier": "default"} if chat.service_tier else {}


def _encode_obfuscated(chunk: dict[str, Any]) -> bytes:
    return obfuscated(chunk) if chunk.get("choices") else encode_event(chunk)
