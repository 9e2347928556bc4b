"""A turn as the events of a Messages stream, and as a whole message."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dgpp.serve.answers import usage
from dgpp.serve.anthropic.arguments import argument_object
from dgpp.serve.anthropic.errors import error_object
from dgpp.serve.call_ids import call_id
from dgpp.serve.errors import ApiError
from dgpp.serve.parts import Ended, PartClosed, PartEvent, PartOpened, Parts, PartText
from dgpp.serve.sse import encode_named_event
from dgpp.serve.turn import Failed, Turn
from dgpp.text.events import Finished

PING = encode_named_event({"type": "ping"})

_Event = dict[str, Any]
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def failure(error: ApiError) -> bytes:
    """The event that ends a stream in place of what it owes."""
    return encode_named_event(error_object(error))


@dataclass
class _Block:
    """One block of the message."""

    opened: PartOpened
    id: str  # of a call
    text: list[str] = field(default_factory=list)

    def empty(self) -> dict[str, Any]:
        """The block as it begins."""
        match self.opened.kind:
            case "text":
                return {"type": "text", "text": ""}
            case "reasoning":
                return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "tool_use", "id": self.id, "name": self.opened.name, "input": {}}

    def whole(self) -> dict[str, Any]:
        """The block as it ends."""
        text = "".join(self.text)
        match self.opened.kind:
            case "text":
                return {**self.empty(), "text": text}
            case "reasoning":
                return {**self.empty(), "thinking": text, "signature": signature(text)}
        return {**self.empty(), "input": argument_object(text)}

    def delta(self, text: str) -> dict[str, Any]:
        """More of the block."""
        match self.opened.kind:
            case "text":
                return {"type": "text_delta", "text": text}
            case "reasoning":
                return {"type": "thinking_delta", "thinking": text}
        return {"type": "input_json_delta", "partial_json": text}


class MessageEvents:
    """Makes the events of one turn, and the message that they add up to. With `omits`, its thoughts are empty."""

    def __init__(self, turn: Turn, *, omits: bool = False) -> None:
        self._turn = turn
        self._omits = omits
        self._blocks: list[_Block] = []
        self._end: Ended | None = None
        self.failed: ApiError | None = None  # why the turn could not be brought to its end

    def events(self) -> Iterator[_Event | None]:
        """The events in the API's order; None when there was nothing to say."""
        yield {"type": "message_start", "message": self._message([], None, None, None)}
        parts = Parts()
        for step in self._turn.events():
            if isinstance(step, Failed):
                self.failed = step.error
                yield error_object(step.error)
                return
            made = [] if step is None else [event for part in parts.feed(step.events) for event in self._of(part)]
            if made:
                yield from made
            else:
                yield None

    def whole(self) -> dict[str, Any]:
        """The message, once everything is generated. Raises ApiError when the turn fails."""
        for _ in self.events():
            pass
        if self.failed is not None:
            raise self.failed
        assert self._end is not None
        reason, stop = _stopped(self._end)
        return self._message([block.whole() for block in self._blocks], reason, stop, self._end.finished)

    def _of(self, event: PartEvent) -> Iterator[_Event]:
        match event:
            case PartOpened():
                id = call_id(self._turn.id, 0, event.call).replace("call_", "toolu_")
                block = _Block(event, id)
                self._blocks.append(block)
                yield {"type": "content_block_start", "index": event.part, "content_block": block.empty()}
            case PartText() if event.text and not (self._omits and self._blocks[-1].opened.kind == "reasoning"):
                self._blocks[-1].text.append(event.text)
                yield self._delta(self._blocks[-1].delta(event.text))
            case PartClosed():
                yield from self._closed()
            case Ended():
                self._end = event
                reason, stop = _stopped(event)
                delta = {"stop_reason": reason, "stop_sequence": stop}
                yield {"type": "message_delta", "delta": delta, "usage": self._usage(event.finished)}
                yield {"type": "message_stop"}

    def _closed(self) -> Iterator[_Event]:
        block = self._blocks[-1]
        if block.opened.kind == "reasoning":
            yield self._delta({"type": "signature_delta", "signature": signature("".join(block.text))})
        yield {"type": "content_block_stop", "index": block.opened.part}

    def _delta(self, delta: dict[str, Any]) -> _Event:
        return {"type": "content_block_delta", "index": self._blocks[-1].opened.part, "delta": delta}

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, finished: Finished | None
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self._turn.id.rpartition('-')[2]}",
            "type": "message",
            "role": "assistant",
            "model": self._turn.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": self._usage(finished),
        }

    def _usage(self, finished: Finished | None) -> dict[str, Any]:
        """Input tokens that came from the cache are counted apart from the others in this API."""
        totals = usage(self._turn, [] if finished is None else [finished])
        cached = totals["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": totals["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": totals["completion_tokens"],
            "output_tokens_details": {"thinking_tokens": totals["completion_tokens_details"]["reasoning_tokens"]},
        }


def _stopped(end: Ended) -> tuple[str, str | None]:
    """(stop_reason, stop_sequence)."""
    if end.stop is not None:
        return "stop_sequence", end.stop
    return _REASONS[end.finished.reason], None


def signature(thought: str) -> str:
    """What clients send back with a thought. Nothing is proved by it here; it is the same for the same thought."""
    return base64.b64encode(hashlib.blake2b(thought.encode(), digest_size=24).digest()).decode()
