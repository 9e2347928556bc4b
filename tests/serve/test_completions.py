"""Raw completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgpp.engine.request import FailEvent
from dgpp.serve.completions import likeliest
from dgpp.text.events import Answer, LogprobEntry
from tests.serve.support import NAME, Bench, ids, read_events


def both(made: Bench, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(whole answer, chunks) of one request sent both ways, after checking that they say the same."""
    asked = {"model": NAME, "prompt": "Once", **fields}
    body = made.client.post("/v1/completions", json=asked).get_json()
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = read_events(made.client.post("/v1/completions", json=asked | stream).data)
    *parts, totals = chunks
    assert totals["choices"] == []
    assert totals["usage"] == body["usage"]
    for choice in body["choices"]:
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == choice["index"]]
        before = "Once" if fields.get("echo") else ""
        assert mine[0] == {"index": choice["index"], "text": before, "logprobs": None, "finish_reason": None}
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert [part["finish_reason"] for part in mine] == [None] * (len(mine) - 1) + [choice["finish_reason"]]
        assert mine[-1]["text"] == ""
        if choice["logprobs"] is not None:
            for key, values in choice["logprobs"].items():
                assert [value for part in mine if part["logprobs"] for value in part["logprobs"][key]] == values
    return body, chunks


def test_api_12_whole_and_streamed(bench: Callable[..., Bench]) -> None:
    made = bench(" upon")
    body, chunks = both(made)
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": " upon", "logprobs": None, "finish_reason": "stop"}]
    assert made.engine.requests[0].prompt == tuple(b"Once")
    assert all(chunk["object"] == "text_completion" and "obfuscation" not in chunk for chunk in chunks)


def test_api_4_1_legacy_logprobs(bench: Callable[..., Bench]) -> None:
    body, _ = both(bench("é b"), logprobs=2)
    logprobs = body["choices"][0]["logprobs"]
    assert list(logprobs) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    assert logprobs["tokens"] == ["\ufffd", "\ufffd", " ", "b"]
    assert logprobs["token_logprobs"] == [-0.25] * 4
    assert logprobs["text_offset"] == [0, 0, 2, 3]
    assert logprobs["top_logprobs"][3] == {"b": -0.25, "c": -1.25}


def test_legacy_n_stop_and_budget(bench: Callable[..., Bench]) -> None:
    texts = ["one two", "three"]
    body, _ = both(bench(lambda request, index: ids(texts[index])), n=2, stop=[" two"], max_tokens=7)
    assert [choice["text"] for choice in body["choices"]] == ["one", "three"]
    body, _ = both(bench("abcdef"), max_tokens=3)
    assert body["choices"][0] == {"index": 0, "text": "abc", "logprobs": None, "finish_reason": "length"}


@pytest.mark.parametrize("stream", [False, True])
def test_legacy_failure(bench: Callable[..., Bench], stream: bool) -> None:
    made = bench([*ids("ab"), FailEvent("engine_failure", "")])
    reply = made.client.post("/v1/completions", json={"model": NAME, "prompt": "a", "stream": stream})
    if stream:
        *chunks, last = read_events(reply.data)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "ab"
    else:
        last = reply.get_json()
    assert last["error"]["code"] == "engine_failure"


def test_echo_puts_the_prompt_before_the_answer(bench: Callable[..., Bench]) -> None:
    body, _ = both(bench(" upon"), echo=True, n=2)
    assert [choice["text"] for choice in body["choices"]] == ["Once upon"] * 2
    assert body["usage"]["completion_tokens"] == 12


def test_best_of_generates_more_than_it_returns(bench: Callable[..., Bench]) -> None:
    made = bench(lambda request, index: ids(f"answer {index}"))
    asked = {"model": NAME, "prompt": "Once", "best_of": 3, "n": 2}
    body = made.client.post("/v1/completions", json=asked).get_json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert all(choice["logprobs"] is None for choice in body["choices"])
    assert body["usage"]["completion_tokens"] == 3 * len("answer 0") + 3
    assert len(made.engine.requests) == 3


def test_best_of_returns_the_answers_of_the_greatest_mean_logprob() -> None:
    def answer(content: str, *logprobs: float) -> Answer:
        entries = tuple(LogprobEntry(1, "a", logprob, b"a", (), 0) for logprob in logprobs)
        return Answer(content, "", entries, None, "stop", len(logprobs))

    answers = [answer("low", -3.0), answer("long", -1.0, -1.0, -1.0), answer("high", -0.5), answer("same", -0.5, -0.5)]
    assert [found.content for found in likeliest(answers, 3)] == ["high", "same", "long"]
    assert likeliest(answers, 4) == answers
