"""A turn as the events of a Responses stream; the whole answer is the object that the last of them carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dgpp.serve.errors import ApiError
from dgpp.serve.parts import Ended, PartClosed, PartEvent, PartOpened, Parts, PartText
from dgpp.serve.responses.objects import Frame, Item, Status, logprobs
from dgpp.serve.sse import encode_named_event
from dgpp.serve.turn import Failed, Turn

TERMINAL = ("response.completed", "response.incomplete", "response.failed")

_Event = dict[str, Any]


class ResponseEvents:
    """Makes the events of one turn. `failure` is the event for an error that the turn does not know of."""

    def __init__(self, turn: Turn, frame: Frame) -> None:
        self._turn = turn
        self._frame = frame
        self._number = 0
        self._items: list[Item] = []
        self.failed: ApiError | None = None  # why the turn could not be brought to its end

    def events(self) -> Iterator[_Event | None]:
        """The events in the API's order; None when there was nothing to say."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._frame.object([], "in_progress"))
        parts = Parts()
        for step in self._turn.events():
            if step is None:
                yield None
            elif isinstance(step, Failed):
                self.failed = step.error
                yield self._event(
                    "response.failed", response=self._frame.object(self._output(), "failed", error=step.error)
                )
            else:
                before = self._number
                for part in parts.feed(step.events):
                    yield from self._of(part)
                if self._number == before:
                    yield None

    def failure(self, error: ApiError) -> bytes:
        """The `error` event, encoded."""
        code = error.kind.code or "server_error"
        return encode_named_event(self._event("error", code=code, message=error.message, param=error.param))

    def _event(self, kind: str, **fields: Any) -> _Event:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _output(self) -> list[dict[str, Any]]:
        return [item.object() for item in self._items]

    def _of(self, event: PartEvent) -> Iterator[_Event]:
        match event:
            case PartOpened():
                yield from self._opened(event)
            case PartText():
                yield self._delta(event)
            case PartClosed():
                yield from self._closed(event)
            case Ended():
                status: Status = "incomplete" if event.finished.reason == "length" else "completed"
                response = self._frame.object(self._output(), status, event.finished)
                yield self._event(f"response.{status}", response=response)

    def _opened(self, event: PartOpened) -> Iterator[_Event]:
        item = Item(event, self._frame)
        self._items.append(item)
        yield self._event("response.output_item.added", output_index=event.part, item=item.object())
        if event.kind in ("reasoning", "text"):
            item.has_part = True
            yield self._part_event("response.content_part.added", part=item.part())

    def _delta(self, event: PartText) -> _Event:
        item = self._items[-1]
        entries = logprobs(event.entries)
        item.add(event.text, entries)
        match item.opened.kind:
            case "text":
                return self._part_event("response.output_text.delta", delta=event.text, logprobs=entries)
            case "reasoning":
                return self._part_event("response.reasoning_text.delta", delta=event.text)
            case "function":
                return self._item_event("response.function_call_arguments.delta", delta=event.text)
            case "custom":
                return self._item_event("response.custom_tool_call_input.delta", delta=event.text)

    def _closed(self, event: PartClosed) -> Iterator[_Event]:
        item = self._items[-1]
        match item.opened.kind:
            case "text":
                yield self._part_event("response.output_text.done", text=item.text, logprobs=item.entries)
            case "reasoning":
                yield self._part_event("response.reasoning_text.done", text=item.text)
            case "function":
                kind = "response.function_call_arguments.done"
                yield self._item_event(kind, **self._frame.called(item.opened.name), arguments=item.text)
            case "custom":
                yield self._item_event("response.custom_tool_call_input.done", input=item.text)
        if item.has_part:
            yield self._part_event("response.content_part.done", part=item.part())
        item.status = "completed" if event.complete else "incomplete"
        yield self._event("response.output_item.done", output_index=item.opened.part, item=item.object())

    def _item_event(self, kind: str, **fields: Any) -> _Event:
        item = self._items[-1]
        return self._event(kind, item_id=item.id, output_index=item.opened.part, **fields)

    def _part_event(self, kind: str, **fields: Any) -> _Event:
        return self._item_event(kind, content_index=0, **fields)
