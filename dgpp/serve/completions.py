"""POST /v1/completions: a turn as text completion objects, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flask import Blueprint, Response, request

from dgpp.serve.answers import answers, usage, wire_logprob
from dgpp.serve.replies import event_stream, json_reply, start
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.completion import CompletionRequest, parse_completion
from dgpp.serve.service import Service
from dgpp.serve.turn import Failed, Step, Turn
from dgpp.text.events import Answer, Finished, LogprobDelta, LogprobEntry, TextDelta


def blueprint(service: Service) -> Blueprint:
    """The route."""
    routes = Blueprint("completions", __name__)

    @routes.post("/v1/completions")
    def create() -> Response:
        asked = parse_completion(parse_body(request.get_data()), service.served)
        turn = start(service.complete, asked)
        if asked.stream is None:
            return json_reply(completion(turn, asked))
        return event_stream(turn, chunks(turn, asked), service.ping_interval(asked.stream))

    return routes


def completion(turn: Turn, asked: CompletionRequest) -> dict[str, Any]:
    """The `text_completion` object, once everything is generated. Raises ApiError when the engine fails."""
    generated = answers(turn)
    before = asked.prompt if asked.echo else ""
    choices = [
        {
            "index": index,
            "text": before + answer.content,
            "logprobs": None if asked.decoding.logprobs is None else _logprobs(answer.logprobs),
            "finish_reason": answer.finish_reason,
        }
        for index, answer in enumerate(likeliest(generated, asked.decoding.n))
    ]
    return {**_head(turn), "choices": choices, "usage": usage(turn, generated)}


def likeliest(generated: Sequence[Answer], count: int) -> list[Answer]:
    """The `count` answers whose tokens have the greatest mean log-probability, in the order in which they were
    generated where that is the same; all of them as they are when there are no more."""
    if count >= len(generated):
        return list(generated)

    def mean(answer: Answer) -> float:
        return sum(entry.logprob for entry in answer.logprobs) / max(1, len(answer.logprobs))

    return sorted(generated, key=mean, reverse=True)[:count]


def chunks(turn: Turn, asked: CompletionRequest) -> Iterator[dict[str, Any] | None]:
    """The `text_completion` chunks of a turn; None when there was nothing to say.

    A choice opens with an empty text, or the echoed prompt, just before its first chunk; the entries of
    log-probabilities travel with the text that shows them.
    """
    assert asked.stream is not None
    nulls = {"usage": None} if asked.stream.include_usage else {}
    opened: set[int] = set()
    finished: list[Finished] = []
    for step in turn.events():
        if isinstance(step, Failed):
            yield step.error.body()
            return
        choices = _choices(step) if step is not None else []
        if step is not None and choices and step.index not in opened:
            opened.add(step.index)
            choices.insert(0, _text(step.index, asked.prompt if asked.echo else ""))
        for choice in choices:
            yield {**_head(turn), "choices": [choice], **nulls}
        if not choices:
            yield None
        if step is not None:
            finished += [event for event in step.events if isinstance(event, Finished)]
    if asked.stream.include_usage:
        yield {**_head(turn), "choices": [], "usage": usage(turn, finished)}


def _choices(step: Step) -> list[dict[str, Any]]:
    """The `choices` entries of one step."""
    choices: list[dict[str, Any]] = []
    for event in step.events:
        match event:
            case TextDelta():
                choices.append(_text(step.index, event.text))
            case LogprobDelta():
                # The pipeline puts it right behind the text it belongs to.
                choices[-1]["logprobs"] = _logprobs(event.entries)
            case Finished():
                choices.append(_text(step.index, finish_reason=event.reason))
    return choices


def _head(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "object": "text_completion",
        "created": turn.created,
        "model": turn.model,
        "system_fingerprint": None,
    }


def _text(index: int, text: str = "", finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _logprobs(entries: Iterable[LogprobEntry]) -> dict[str, Any]:
    """`text_offset` counts bytes of the completion's text."""
    entries = list(entries)
    return {
        "tokens": [entry.token for entry in entries],
        "token_logprobs": [wire_logprob(entry.logprob) for entry in entries],
        "top_logprobs": [_alternatives(entry) for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }


def _alternatives(entry: LogprobEntry) -> dict[str, float]:
    """Text to log-probability; of two tokens with one text the likelier counts."""
    alternatives: dict[str, float] = {}
    for top in entry.top:
        alternatives.setdefault(top.token, wire_logprob(top.logprob))
    return alternatives
