"""Thinking and the shape of a conversation over HTTP (spec/api.md §5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.support import END, MARKERS, Bench, both_ways, chat, ids, user
from tests.text.templates import QWEN38

Make = Callable[..., Bench]


def thinker(bench: Make, script: Any, **options: Any) -> Bench:
    return bench(script, template=QWEN38, markers=MARKERS, info=Bench.info(position_ceiling=4096), **options)


def said(body: dict[str, Any]) -> tuple[str, str | None]:
    message = body["choices"][0]["message"]
    return message["content"], message.get("reasoning_content")


def test_T9_thinking_has_a_field_of_its_own(bench: Make) -> None:
    body, chunks = both_ways(thinker(bench, "Hm.\nYes.\n</think>\n\nParis."))
    assert said(body) == ("Paris.", "Hm.\nYes.")
    assert list(body["choices"][0]["message"]) == ["role", "content", "reasoning_content", "refusal"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    fields = [field for delta in deltas[1:] for field in delta]
    assert fields == sorted(fields, reverse=True)  # all of the reasoning_content, then all of the content


def test_T11_thinking_that_is_cut_off_stays_thinking(bench: Make) -> None:
    body, _ = both_ways(thinker(bench, "I wonder whether this"), max_tokens=8)
    assert said(body) == ("", "I wonder")
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 8


def test_T11_without_thinking_in_the_prompt_everything_is_content(bench: Make) -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    body, _ = both_ways(thinker(bench, "Paris."), **off)
    assert said(body) == ("Paris.", None)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_api_5_4_thinking_as_part_of_the_content(bench: Make) -> None:
    made = thinker(bench, "Hm.\n</think>\n\nParis.", reasoning_in_content=True)
    body, _ = both_ways(made)
    assert said(body) == ("Hm.\n</think>\n\nParis.", None)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert made.client.get("/v1/models").get_json()["data"][0]["reasoning"]["in_content"] is True
    stopped, _ = both_ways(made, stop=["think"])
    assert said(stopped) == ("Hm.\n</", None)


def test_api_4_1_no_logprobs_of_hidden_thinking(bench: Make) -> None:
    body, _ = both_ways(thinker(bench, "Hm.</think>\n\nYes."), logprobs=True)
    assert "".join(entry["token"] for entry in body["choices"][0]["logprobs"]["content"]) == "Yes."


def test_T3_a_late_instruction_is_said_by_the_user_where_the_template_refuses_it(bench: Make) -> None:
    made = thinker(bench, "</think>\n\nok")
    messages = [*user("hi"), {"role": "assistant", "content": "x"}, {"role": "system", "content": "reminder"}]
    reply = made.client.post("/v1/chat/completions", json=chat(messages=[*messages, *user("go")]))
    assert reply.status_code == 200
    assert made.prompts()[0].count("system\n") == 1  # the template's own, about the effort
    assert "user\nreminder\n\ngo\n" in made.prompts()[0]


def test_T3_a_template_that_takes_it_gets_it_as_it_is(bench: Make) -> None:
    made = bench("ok")
    messages = [*user("hi"), {"role": "system", "content": "reminder"}, *user("go")]
    assert made.client.post("/v1/chat/completions", json=chat(messages=messages)).status_code == 200
    assert "system\nreminder" in made.prompts()[0]


def test_a_conversation_that_is_refused_either_way_hears_the_first_reason(bench: Make) -> None:
    messages = [{"role": "assistant", "content": "x"}, {"role": "system", "content": "<tool_response>"}]
    reply = thinker(bench, "ok").client.post("/v1/chat/completions", json=chat(messages=messages))
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize("template", [None, QWEN38])
def test_continue_final_message_goes_on_where_the_last_message_ends(bench: Make, template: str | None) -> None:
    made = thinker(bench, " two") if template else bench(" two")
    messages = [*user("count"), {"role": "assistant", "content": "one,"}]
    body, _ = both_ways(made, messages=messages, continue_final_message=True)
    assert said(body)[0] == " two"
    prompt = made.engine.requests[0].prompt
    assert bytes(id for id in prompt if id < 256).endswith(b"assistant\none,")
    assert prompt[-1] != END
    assert prompt[-len("one,") :] == tuple(ids("one,"))


@pytest.mark.parametrize(
    "last",
    [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ],
)
def test_continue_final_message_needs_a_message_of_the_assistant(bench: Make, last: dict[str, Any]) -> None:
    asked = chat(messages=[*user(), last], continue_final_message=True)
    reply = bench().client.post("/v1/chat/completions", json=asked)
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (400, "continue_final_message")


def test_min_tokens_over_http(bench: Make) -> None:
    body, _ = both_ways(bench([*ids("a"), END, *ids("bcd"), END, END]), min_tokens=4)
    assert body["usage"]["completion_tokens"] >= 5
