"""The prompts of DeepSeek-V4 and V4.1: spec/models_deepseek_mimo_flint.md §2.12, §3.14."""

from __future__ import annotations

from typing import Any

import pytest

from dgpp.text.deepseek_prompt import DeepSeekPrompt
from dgpp.text.messages import Message, parse_messages
from dgpp.text.segments import joined
from dgpp.text.template import TemplateError
from dgpp.text.tools.declared import parse_tools

V4 = DeepSeekPrompt(preambles={"high": "HIGH. ", "max": "MAX. "}, tools_texts=("TOOLS:\n", "\nEND"))
V41 = DeepSeekPrompt(v41=True, tools_texts=("TOOLS:\n", "\nEND"))
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
U, A, S = "<｜User｜>", "<｜Assistant｜>", "<｜System｜>"
HIGH = "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n"


def text(encoder: DeepSeekPrompt, *messages: dict[str, Any], **keys: Any) -> str:
    variables = {key: keys.pop(key) for key in list(keys) if key.endswith(("thinking", "effort"))}
    return joined(encoder.render(parse_messages(list(messages)), variables=variables, **keys))


def user(content: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": content}


def assistant(content: str = "ok", **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


def result(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def called(*ids: str) -> dict[str, Any]:
    return assistant("", tool_calls=[{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ids])


TOOL = [tool.for_template() for tool in parse_tools([{"name": "f"}])]


def test_v4_thinking_and_chat() -> None:
    assert text(V4, user()) == f"{BOS}{U}hi{A}<think>"
    assert text(V4, user(), enable_thinking=False) == f"{BOS}{U}hi{A}</think>"
    assert text(V4, system(), user()) == f"{BOS}Be brief.{U}hi{A}<think>"
    assert text(V4, user(), add_generation_prompt=False) == f"{BOS}{U}hi"


@pytest.mark.parametrize(
    ("effort", "preamble"),
    [
        (None, ""),
        ("minimal", ""),
        ("low", ""),
        ("medium", ""),
        ("high", "HIGH. "),
        ("xhigh", "MAX. "),
        ("max", "MAX. "),
    ],
)
def test_v4_the_effort_stands_before_the_first_message_while_thinking(effort: str | None, preamble: str) -> None:
    assert text(V4, system(), user(), reasoning_effort=effort) == f"{BOS}{preamble}Be brief.{U}hi{A}<think>"
    off = text(V4, system(), user(), reasoning_effort=effort, enable_thinking=False)
    assert off == f"{BOS}Be brief.{U}hi{A}</think>"


@pytest.mark.parametrize(
    ("effort", "budget"),
    [
        (None, 75),
        ("minimal", 25),
        ("low", 50),
        ("medium", 62),
        ("high", 75),
        ("xhigh", 100),
        ("max", 100),
        (1, 1),
        (100, 100),
    ],
)
def test_v41_the_effort_is_a_line_of_the_leading_system_turn(effort: Any, budget: int) -> None:
    line = HIGH.replace("75", str(budget))
    assert text(V41, system(), user(), reasoning_effort=effort) == f"{BOS}{S}{line}Be brief.{U}hi{A}<think>"
    assert text(V41, user(), reasoning_effort=effort) == f"{BOS}{S}{line}{U}hi{A}<think>"


def test_v41_chat_mode_has_no_system_turn_of_its_own() -> None:
    assert text(V41, user(), enable_thinking=False) == f"{BOS}{U}hi{A}</think>"
    assert text(V41, system(), user(), enable_thinking=False) == f"{BOS}{S}Be brief.{U}hi{A}</think>"


@pytest.mark.parametrize(
    ("encoder", "effort"), [(V4, "none"), (V4, 50), (V41, 0), (V41, 101), (V41, True), (V41, "most")]
)
def test_an_effort_that_is_none_is_refused(encoder: DeepSeekPrompt, effort: Any) -> None:
    with pytest.raises(TemplateError, match="There is no effort"):
        text(encoder, user(), reasoning_effort=effort)


@pytest.mark.parametrize(("encoder", "head"), [(V4, BOS), (V41, f"{BOS}{S}{HIGH}")])
def test_earlier_reasoning_is_dropped_unless_it_is_to_be_kept_or_there_are_tools(
    encoder: DeepSeekPrompt, head: str
) -> None:
    history = [user("one"), assistant("1", reasoning_content="first"), user("two")]
    dropped = f"{U}one{A}</think>1{EOS}{U}two{A}<think>"
    kept = f"{U}one{A}<think>first</think>1{EOS}{U}two{A}<think>"
    assert text(encoder, *history) == head + dropped
    assert text(encoder, *history, drop_thinking=True) == head + dropped
    assert text(encoder, *history, drop_thinking=False) == head + kept
    assert text(encoder, *history, clear_thinking=False) == head + kept
    assert text(encoder, *history, tools=TOOL).endswith(kept)
    chat = text(encoder, *history, enable_thinking=False, drop_thinking=False)
    assert chat == f"{BOS}{U}one{A}</think>1{EOS}{U}two{A}</think>"


@pytest.mark.parametrize("encoder", [V4, V41])
def test_results_of_tools_stand_in_the_users_turn_in_the_order_of_the_calls(encoder: DeepSeekPrompt) -> None:
    given = [user(), called("a", "b", "c"), result("c", "3"), user("look"), result("a", "1"), result("b", "2")]
    rendered = text(encoder, *given, result("z", "?"), enable_thinking=False)
    results = [f"<tool_result>{n}</tool_result>" for n in "123?"]
    assert rendered.endswith("\n\n".join([f"{EOS}{U}{results[0]}", "look", *results[1:]]) + f"{A}</think>")


@pytest.mark.parametrize("encoder", [V4, V41])
def test_consecutive_users_are_one_turn(encoder: DeepSeekPrompt) -> None:
    assert text(encoder, user("a"), user("b"), enable_thinking=False) == f"{BOS}{U}a\n\nb{A}</think>"


def test_the_tools_follow_the_system_text() -> None:
    block = '\n\nTOOLS:\n{"name": "f"}\nEND'
    assert text(V4, system(), user(), tools=TOOL) == f"{BOS}Be brief.{block}{U}hi{A}<think>"
    assert text(V4, user(), tools=TOOL) == f"{BOS}{block}{U}hi{A}<think>"
    assert text(V41, system(), user(), tools=TOOL) == f"{BOS}{S}{HIGH}Be brief.{block}{U}hi{A}<think>"
    assert text(V41, user(), tools=TOOL) == f"{BOS}{S}{HIGH}{block}{U}hi{A}<think>"
    assert text(V41, user(), tools=TOOL, enable_thinking=False) == f"{BOS}{S}{block}{U}hi{A}</think>"


def test_v41_names_tools_with_their_namespace() -> None:
    space = {"name": "files", "description": "On disk."}
    for namespace, name, about in (("files", "files::f", "Reads."), (space, "files::f", "On disk.\\nReads.")):
        declared = parse_tools([{"name": "f", "description": "Reads.", "namespace": namespace}])
        tools = [tool.for_template(namespace=True) for tool in declared]
        assert f'{{"name": "{name}", "description": "{about}"}}' in text(V41, user(), tools=tools)


def test_a_late_system_message() -> None:
    late = [user(), assistant(), system("Stop.")]
    assert text(V4, *late, enable_thinking=False) == f"{BOS}{U}hi{A}</think>ok{EOS}Stop."
    assert text(V41, *late, enable_thinking=False) == f"{BOS}{U}hi{A}</think>ok{EOS}{S}Stop.{A}</think>"
    between = text(
        V41, user(), assistant(reasoning_content="r"), system("Stop."), assistant("no", reasoning_content="q")
    )
    assert between == f"{BOS}{S}{HIGH}{U}hi{A}</think>ok{EOS}{S}Stop.{A}<think>q</think>no{EOS}"
    assert text(V4, system()) == f"{BOS}Be brief."


@pytest.mark.parametrize("encoder", [V4, V41])
def test_the_last_message_can_be_continued(encoder: DeepSeekPrompt) -> None:
    off = text(encoder, user(), assistant("So"), continue_final=True, enable_thinking=False)
    assert off == f"{BOS}{U}hi{A}</think>So"
    on = text(encoder, user(), assistant("So", reasoning_content="r"), continue_final=True)
    assert on.endswith(f"{U}hi{A}<think>r</think>So")


def test_what_it_has_no_form_for_is_refused() -> None:
    with pytest.raises(TemplateError, match="as text"):
        V4.render([Message("user", "hi"), Message("tool", ({"output": "x"},))])
    with pytest.raises(TemplateError, match=r"messages\[0\]\.content holds an unpaired surrogate"):
        V4.render([Message("user", "\ud83d")])


def test_the_encoder_is_told_by_the_tokenizer() -> None:
    control = {text: id for id, text in enumerate([BOS, EOS, U, A, "｜DSML｜"])}
    assert DeepSeekPrompt.of(control) == DeepSeekPrompt()
    assert DeepSeekPrompt.of({**control, S: 9}) == DeepSeekPrompt(v41=True)
    assert DeepSeekPrompt.of({"<|im_start|>": 1}) is None
