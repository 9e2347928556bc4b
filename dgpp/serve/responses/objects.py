"""The `response` object and the items of its output, as they look at any time of their making."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from dgpp.engine.request import Sampling
from dgpp.serve.answers import usage, wire_logprob
from dgpp.serve.call_ids import call_id
from dgpp.serve.errors import ApiError
from dgpp.serve.parts import PartKind, PartOpened
from dgpp.serve.requests.chat import ChatRequest
from dgpp.serve.responses.tools import UNASKED, called_names
from dgpp.serve.turn import Turn
from dgpp.text.events import Finished, LogprobEntry

Status = Literal["in_progress", "completed", "incomplete", "failed"]

_ID_PREFIXES: dict[PartKind, str] = {"reasoning": "rs", "text": "msg", "function": "fc", "custom": "ctc"}
_TOOL_DEFAULTS: dict[str, dict[str, Any]] = {
    "function": {"description": None, "parameters": None, "strict": False},
    "custom": {"description": None, "format": {"type": "text"}},
}
"""What a tool says of itself when nothing was said."""


class Frame:
    """What a response says about its request and its turn: all of the object but the output and how it ended."""

    def __init__(self, turn: Turn, chat: ChatRequest, sent: dict[str, Any], defaults: Sampling) -> None:
        self._turn = turn
        self._chat = chat
        self._sent = sent
        self._defaults = defaults
        self._names = called_names(sent.get("tools"))
        self.tag = turn.id.rpartition("-")[2]

    def call_id(self, call: int) -> str:
        """The id of a tool call."""
        return call_id(self._turn.id, 0, call)

    def called(self, name: str) -> dict[str, str]:
        """The name of a tool as it was declared, and its namespace if it has one."""
        return self._names.get(name, {"name": name})

    def object(
        self,
        output: list[dict[str, Any]],
        status: Status,
        finished: Finished | None = None,
        error: ApiError | None = None,
    ) -> dict[str, Any]:
        """The response object with this output."""
        sent, decoding = self._sent, self._chat.decoding
        reasoning, text = sent.get("reasoning") or {}, sent.get("text") or {}
        cut = status == "incomplete"
        return {
            "id": f"resp_{self.tag}",
            "object": "response",
            "created_at": self._turn.created,
            "status": status,
            "background": False,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": None if error is None else {"code": "server_error", "message": error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": sent.get("instructions"),
            "max_output_tokens": decoding.max_tokens,
            "max_tool_calls": None,
            "model": self._turn.model,
            "output": output,
            "parallel_tool_calls": sent.get("parallel_tool_calls") is not False,
            "previous_response_id": None,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "service_tier": "default",
            "store": False,
            "temperature": self._defaults.temperature if decoding.temperature is None else decoding.temperature,
            "text": {"format": text.get("format") or {"type": "text"}},
            "tool_choice": sent.get("tool_choice") or "auto",
            "tools": [
                _TOOL_DEFAULTS.get(tool["type"], {}) | tool
                for tool in sent.get("tools") or []
                if tool["type"] != UNASKED
            ],
            "top_logprobs": decoding.logprobs or 0,
            "top_p": self._defaults.top_p if decoding.top_p is None else decoding.top_p,
            "truncation": "disabled",
            "usage": None if finished is None else self._usage(finished),
            "user": sent.get("user"),
            "metadata": self._chat.metadata or {},
        }

    def _usage(self, finished: Finished) -> dict[str, Any]:
        totals = usage(self._turn, [finished])
        return {
            "input_tokens": totals["prompt_tokens"],
            "input_tokens_details": {**totals["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": totals["completion_tokens"],
            "output_tokens_details": totals["completion_tokens_details"],
            "total_tokens": totals["total_tokens"],
        }


@dataclass
class Item:
    """One item of the output while it grows."""

    opened: PartOpened
    frame: Frame
    status: Status = "in_progress"
    has_part: bool = False
    _text: list[str] = field(default_factory=list)
    _entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The item's id."""
        return f"{_ID_PREFIXES[self.opened.kind]}_{self.frame.tag}_{self.opened.part}"

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self._text)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The log-probabilities of its text."""
        return list(self._entries)

    def add(self, text: str, entries: list[dict[str, Any]]) -> None:
        """Goes on with `text`."""
        self._text.append(text)
        self._entries += entries

    def part(self) -> dict[str, Any]:
        """The content part of a text or of thinking."""
        if self.opened.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.entries}

    def object(self) -> dict[str, Any]:
        """The item as it is now."""
        content = [self.part()] if self.has_part else []
        match self.opened.kind:
            case "reasoning":
                return {"id": self.id, "type": "reasoning", "status": self.status, "summary": [], "content": content}
            case "text":
                return {
                    "id": self.id,
                    "type": "message",
                    "status": self.status,
                    "role": "assistant",
                    "content": content,
                }
            case "function":
                return {**self._call("function_call"), "arguments": self.text}
            case "custom":
                return {**self._call("custom_tool_call"), "input": self.text}

    def _call(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": kind,
            "status": self.status,
            "call_id": self.frame.call_id(self.opened.call),
            **self.frame.called(self.opened.name),
        }


def logprobs(entries: Iterable[LogprobEntry]) -> list[dict[str, Any]]:
    """Log-probabilities as they are sent."""
    return [
        {
            **_token(entry.token, entry.logprob, entry.data),
            "top_logprobs": [_token(top.token, top.logprob, top.data) for top in entry.top],
        }
        for entry in entries
    ]


def _token(token: str, logprob: float, data: bytes) -> dict[str, Any]:
    return {"token": token, "logprob": wire_logprob(logprob), "bytes": list(data)}
