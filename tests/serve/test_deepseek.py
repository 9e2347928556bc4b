"""A model whose checkpoint has an encoder instead of a chat template: its tools and thinking over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dgpp.engine.scripted import ScriptedEngine
from dgpp.serve.app import create_app
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings
from dgpp.text.deepseek_prompt import ASSISTANT, BOS, EOS, SYSTEM, USER, DeepSeekPrompt
from dgpp.text.tools.dsml import TOKEN
from tests.serve.support import END, Bench, byte_tokenizer
from tests.serve.test_tools import WEATHER

CONTROL = ("<think>", "</think>", BOS, EOS, USER, ASSISTANT, TOKEN, SYSTEM)
START_OF_SYSTEM = 300 + CONTROL.index(SYSTEM)
CALL = (
    '\n\n<|calls>\n<|invoke name="get_weather">\n'
    '<|parameter name="city" string="true">Paris</|parameter>\n'
    '<|parameter name="days" string="false">3</|parameter>\n</|invoke>\n</|calls>'
)


def said(text: str, spaced: bool) -> list[int]:
    """Ids of what the model says: `|` before a name stands for the DSML token."""
    calls = "calls" if spaced else "tool_calls"
    out: list[int] = []
    for at, part in enumerate(text.replace("|calls", f"|{calls}").split("|")):
        if at:
            out.append(300 + CONTROL.index(TOKEN))
            part = f" {part}" if spaced else part
        for place, piece in enumerate(part.split("</think>")):
            out += ([301] if place else []) + list(piece.encode())
    return out


@pytest.fixture(params=[False, True], ids=["v4", "v4.1"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    v41: bool = request.param
    control = CONTROL if v41 else CONTROL[:-1]
    tokenizer = byte_tokenizer(control)
    template = DeepSeekPrompt.of(tokenizer.control_tokens)
    assert template is not None
    assert template.v41 is v41
    script = said(f"Hm.</think>I look.{CALL}", v41)
    made: Bench
    engine = ScriptedEngine(lambda request, index: made.script, info=Bench.info(position_ceiling=4096))
    made = Bench(engine, Settings(port=0), None)
    made.service = Service(
        engine, tokenizer, template, names=("deepseek",), eos=frozenset({END}), settings=made.settings
    )
    made.script = script
    made.app = create_app(made.service, made.settings)
    yield made
    engine.shutdown()


def test_a_call_and_its_result(bench: Bench) -> None:
    messages = [{"role": "user", "content": f"Weather? {USER}"}]
    asked = {"model": "deepseek", "messages": messages, "tools": [WEATHER]}
    reply = bench.client.post("/v1/chat/completions", json=asked)
    assert reply.status_code == 200, reply.get_data(as_text=True)
    (choice,) = reply.get_json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "I look.")
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 3}
    prompt = bench.engine.requests[0].prompt
    assert prompt.count(300 + CONTROL.index(USER)) == 1  # what was typed stays text
    messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "20 degrees"}]
    assert bench.client.post("/v1/chat/completions", json=asked).status_code == 200
    again = bench.engine.requests[1].prompt
    generated = [*prompt, *bench.script]
    assert list(again[: len(generated)]) == generated  # T10: the turn is rendered as it was generated


def test_L9_the_sign_before_a_call_inside_the_thinking_is_no_thinking(bench: Bench) -> None:
    for text, thought in ((f"Is 1 <{CALL}", "Is 1 <"), (f"Is it?{CALL}", "Is it?"), ("1 <\n</think>ok", "1 <")):
        bench.script = said(text, bench.service.prompts.dialect.name == "dsml_v41")  # type: ignore[union-attr]
        asked = {"model": "deepseek", "messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER]}
        (choice,) = bench.client.post("/v1/chat/completions", json=asked).get_json()["choices"]
        assert choice["message"]["reasoning_content"] == thought
        assert ("tool_calls" in choice["message"]) is (CALL in text)


@pytest.mark.parametrize("effort", ["none", "low", "high", "max"])
def test_api_5_4_efforts(bench: Bench, effort: str) -> None:
    asked = {"model": "deepseek", "messages": [{"role": "user", "content": "hi"}], "reasoning_effort": effort}
    assert bench.client.post("/v1/chat/completions", json=asked).status_code == 200
    prompt = bench.engine.requests[0].prompt
    assert (prompt[-1] == 300) is (effort != "none")
    text = bytes(id for id in prompt if id < 256).decode()
    budgets = {"low": "50", "high": "75", "max": "100"} if START_OF_SYSTEM in prompt else {}
    assert ("Reasoning Effort: " in text) is (effort in budgets)
    assert f"Reasoning Effort: {budgets.get(effort)} " in text or effort not in budgets
