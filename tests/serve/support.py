"""A byte-level tokenizer (id = byte), a ChatML template, benches over a scripted engine, and readers of streams."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flask.testing import FlaskClient

from dgpp.engine.request import EngineInfo, Sampling
from dgpp.engine.scripted import INFO, ScriptedEngine
from dgpp.serve.app import create_app
from dgpp.serve.prompt import Prompts
from dgpp.serve.requests.thinking import default_template_kwargs
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings
from dgpp.text.template import ChatTemplate
from dgpp.text.tokenizer import Tokenizer

NAME = "scripted/tiny"
START, END = 256, 257
WORDS = {"DEF": 258, "HI": 259, "\u0120own": 260, "\u0120fox": 261}  # ids that say several bytes
TEMPLATE = """\
{% for message in messages %}
{% if message.content == "refuse" %}{{ raise_exception("this template refuses") }}{% endif %}
{{ "<|im_start|>" ~ message.role ~ "\\n" ~ message.content ~ "<|im_end|>\\n" }}
{%- endfor %}
{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""


MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Control tokens that a model for tools and reasoning has: ids 300, 301, ..."""
THINK, THOUGHT, CALL, CALLED = range(300, 304)


FIRST_WORD = 310
"""Further ids that say several bytes, as a test wants them."""


def byte_tokenizer(markers: Sequence[str] = (), words: Sequence[bytes] = ()) -> Tokenizer:
    """Ids 0 to 255 are the bytes; then come the two control tokens; from 300 on `markers`, which text shows, and from
    FIRST_WORD on `words`, which text is never encoded into."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    spelled = {"".join(names[byte] for byte in word): FIRST_WORD + at for at, word in enumerate(words)}
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    control = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spec: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": START, "content": "<|im_start|>", **control},
            {"id": END, "content": "<|im_end|>", **control},
            *({"id": 300 + at, "content": text, **control, "special": False} for at, text in enumerate(markers)),
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {"type": "BPE", "vocab": {names[byte]: byte for byte in range(256)} | WORDS | spelled, "merges": []},
    }
    return Tokenizer(spec, {"eos_token": "<|im_end|>"})


def ids(text: str) -> list[int]:
    """A script that says `text`, its markers as the control tokens that they are."""
    places = {text: 300 + at for at, text in enumerate(MARKERS)}
    parts = re.split("(" + "|".join(map(re.escape, MARKERS)) + ")", text)
    return [id for part in parts for id in ([places[part]] if part in places else part.encode("utf-8"))]


def recut(script: Sequence[int], seed: int) -> tuple[list[int], list[bytes]]:
    """A script that says the same in other tokens: its runs of bytes cut anywhere, and the words that it takes."""
    draw = random.Random(seed)
    density = (0.0, 1.0, draw.random())[seed % 3]
    words: dict[bytes, int] = {}
    out: list[int] = []
    run = b""
    for at, id in enumerate(script):
        if id < 256:
            run += bytes([id])
        last = at + 1 == len(script) or script[at + 1] >= 256
        if run and (last or id >= 256 or draw.random() < density):
            out.append(run[0] if len(run) == 1 else words.setdefault(run, FIRST_WORD + len(words)))
            run = b""
        if id >= 256:
            out.append(id)
    return out, list(words)


class Bench:
    """An engine with everything above it. `post` sends chat requests through the test client.

    `again`, where the script is plain tokens, makes a bench that says the same in other tokens, cut by a seed.
    """

    again: Callable[[int], Bench] | None = None
    script: Sequence[int] = ()

    def __init__(
        self,
        engine: ScriptedEngine,
        settings: Settings,
        defaults: Sampling | None,
        template: str = TEMPLATE,
        template_kwargs: str | None = None,
        markers: Sequence[str] = (),
        words: Sequence[bytes] = (),
    ) -> None:
        self.engine = engine
        self.settings = settings
        tokenizer = byte_tokenizer(markers, words)
        compiled = ChatTemplate(template, control=tokenizer.control_tokens, special_tokens=tokenizer.special_tokens)
        self.service = Service(
            engine,
            tokenizer,
            compiled,
            names=(NAME, "alias"),
            eos=frozenset({END}),
            settings=settings,
            sampling_defaults=defaults,
            template_defaults=default_template_kwargs(template_kwargs, Prompts(tokenizer, compiled).controls),
        )
        self.app = create_app(self.service, settings)

    @staticmethod
    def info(**changes: int) -> EngineInfo:
        """The limits of a scripted engine with some changed."""
        return replace(INFO, **changes)

    @property
    def client(self) -> FlaskClient:
        """A client without a socket."""
        return self.app.test_client()

    def prompts(self) -> list[str]:
        """The prompts that reached the engine, without their control tokens."""
        return [bytes(id for id in request.prompt if id < START).decode("utf-8") for request in self.engine.requests]

    def counts(self) -> dict[str, Any]:
        """The `service` part of the metrics."""
        body: dict[str, Any] = self.client.get("/metrics").get_json()
        return body["service"]


def user(text: str = "hi") -> list[dict[str, Any]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def chat(**fields: Any) -> dict[str, Any]:
    """A chat request body."""
    return {"model": NAME, "messages": user(), "temperature": 0, **fields}


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def read_events(data: bytes) -> list[dict[str, Any]]:
    """The objects of a whole stream, which must be well formed and end with [DONE]; comments are skipped."""
    assert data.endswith(b"\n\n")
    events = [event for event in data.decode("utf-8").split("\n\n")[:-1] if not event.startswith(":")]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def assembled(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The choices that a chat stream adds up to, in the shape of a whole answer; checks the order of the chunks."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        for part in chunk["choices"]:
            assert set(part) == {"index", "delta", "logprobs", "finish_reason"}
            if part["index"] not in choices:
                assert part["delta"] == {"role": "assistant", "content": ""}
                choices[part["index"]] = {
                    "content": "",
                    "reasoning_content": "",
                    "tool_calls": [],
                    "entries": [],
                    "finish_reason": None,
                }
                continue
            choice = choices[part["index"]]
            assert choice["finish_reason"] is None, "a chunk after the terminal one"
            assert "role" not in part["delta"]
            if part["logprobs"] is not None or part["finish_reason"] is not None:
                assert part["delta"] == {}
            for field in ("content", "reasoning_content"):
                choice[field] += part["delta"].get(field, "")
            for call in part["delta"].get("tool_calls", ()):
                add_call(choice["tool_calls"], call)
            choice["entries"] += part["logprobs"]["content"] if part["logprobs"] else []
            choice["finish_reason"] = part["finish_reason"]
    return choices


def without_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls without their ids, which differ from answer to answer."""
    assert all(call["id"].startswith("call_") and len(call["id"]) == len("call_") + 16 for call in calls)
    return [{key: value for key, value in call.items() if key != "id"} for call in calls]


def add_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Adds a part of a tool call to the calls so far: only the first part of a call has its id, type and name."""
    assert part["index"] in (len(calls) - 1, len(calls))
    if part["index"] == len(calls):
        kind = part["type"]
        assert list(part) == ["index", "id", "type", kind]
        calls.append({key: part[key] for key in ("id", "type", kind)})
        return
    (kind,) = set(part) - {"index"}
    ((key, text),) = part[kind].items()
    assert key == ("arguments" if kind == "function" else "input")
    assert text
    calls[-1][kind] = {**calls[-1][kind], key: calls[-1][kind][key] + text}


COUNTED = {"max_tokens", "max_completion_tokens", "min_tokens", "thinking_budget", "logprobs"}
"""Fields whose effect depends on how a text is cut into tokens."""
MASKING = {"tool_choice", "response_format", "parallel_tool_calls"}
"""Fields that may replace a script's tokens by others."""
CUTTINGS = 3


def both_ways(bench: Bench, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(whole answer, chunks) of one chat request sent both ways, after checking that they say the same, however what
    the model says is cut into tokens."""
    body, chunks = _both_ways(bench, fields)
    if bench.again is not None and not fields.keys() & (COUNTED | MASKING):
        for seed in range(CUTTINGS):
            other, _ = _both_ways(bench.again(seed), fields)
            assert [_said(choice) for choice in other["choices"]] == [_said(choice) for choice in body["choices"]], seed
    return body, chunks


def _said(choice: dict[str, Any]) -> dict[str, Any]:
    """What a choice says, without the ids of its calls."""
    message = dict(choice["message"])
    message["tool_calls"] = without_ids(message.get("tool_calls", []))
    return {**choice, "message": message}


def _both_ways(bench: Bench, fields: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    whole = bench.client.post("/v1/chat/completions", json=chat(**fields))
    assert whole.status_code == 200, whole.get_data(as_text=True)
    options = {"include_usage": True, **fields.get("stream_options", {})}
    asked = chat(**{**fields, "stream": True, "stream_options": options})
    streamed = bench.client.post("/v1/chat/completions", json=asked)
    assert streamed.status_code == 200
    assert streamed.mimetype == "text/event-stream"
    body, chunks = whole.get_json(), read_events(streamed.data)
    choices = assembled(chunks)
    assert sorted(choices) == [choice["index"] for choice in body["choices"]]
    for choice in body["choices"]:
        built = choices[choice["index"]]
        message = choice["message"]
        assert built["content"] == (message["content"] or "")
        assert built["reasoning_content"] == message.get("reasoning_content", "")
        assert without_ids(built["tool_calls"]) == without_ids(message.get("tool_calls", []))
        assert built["finish_reason"] == choice["finish_reason"]
        assert built["entries"] == ((choice["logprobs"] or {}).get("content") or [])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == body["usage"]
    return body, chunks
