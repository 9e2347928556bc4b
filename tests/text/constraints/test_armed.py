"""The constraint of a whole answer (spec/api.md §7.2, §7.3, §8; cases J1, J2, L7, L8, L9, L14)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dgpp.text.constraints import ConstraintFailed, Plan, Thinking, Tools, compile, parse_response_format
from dgpp.text.constraints.armed import Armed
from dgpp.text.tools.declared import Tool, ToolChoice, parse_tool_choice, parse_tools
from dgpp.text.tools.qwen_xml import QwenXml
from tests.text.constraints.support import (
    CALL,
    END_CALL,
    END_THINK,
    EOS,
    OBSERVATION,
    THINK,
    allowed,
    draw,
    feed,
    json_plan,
    vocabulary,
)

WORDS = vocabulary()
IDS = WORDS.tokenizer.control_tokens
PLAIN = vocabulary((EOS, THINK, END_THINK))  # no control tokens for calls: their markers are text
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOLS = parse_tools(
    [
        {
            "type": "function",
            "function": {
                "name": "lookup",
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                    "required": ["city", "days"],
                    "additionalProperties": False,
                },
            },
        },
        {"type": "function", "function": {"name": "stop"}},
    ]
)
XML = "\n<function=lookup>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
STOP = "\n<function=stop>\n</function>\n"


@dataclass(frozen=True)
class Json:
    """A dialect of one JSON object between text markers."""

    opener: str = "<tool_call>"
    lead: str = ""

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Any) -> str:
        names = " | ".join(f'"{tool.name}"' for tool in tools)
        call = f'call: "<tool_call>" "\\"" names "\\":" {value({"type": "object"}, False)} "</tool_call>"'
        more = "" if most == 1 else '("\\n" call)*'
        return f"start: call {more}\n{call}\nnames: {names}"


def tools(choice: Any = "auto", *, parallel: bool = True, dialect: Any = None, turn_end: int | None = None) -> Tools:
    parsed: ToolChoice = parse_tool_choice(choice, TOOLS, parallel)
    return Tools(TOOLS, dialect or QwenXml(IDS), parsed, turn_end=turn_end)


def start(plan: Plan, words: Any = WORDS) -> Armed:
    make = compile(plan, words)
    assert make is not None
    return make()


def spelled(*items: str) -> list[int]:
    return WORDS.tokenizer.ids(*items)


def thinking(inside: bool = True, **more: Any) -> Thinking:
    return Thinking(IDS[END_THINK], IDS[THINK], inside, **more)


def ends(constraint: Armed) -> bool:
    """Whether EOS is allowed."""
    mask = constraint.allowed()
    return mask is None or bool(mask[IDS[EOS]])


def only_eos(constraint: Armed) -> bool:
    return allowed(constraint) == {IDS[EOS]}


# Reasoning, then JSON.


def test_J1_grammar_is_armed_after_the_reasoning() -> None:
    constraint = start(json_plan(ANSWER, thinking=thinking()))
    mask = constraint.allowed()
    assert mask is not None
    np.testing.assert_array_equal(mask, WORDS.real & ~np.isin(np.arange(WORDS.vocab_size), [IDS[EOS]]))
    feed(constraint, spelled("{ { what? [1,", END_THINK))
    assert allowed(constraint) <= {
        id for id in range(WORDS.vocab_size) if WORDS.token_bytes(id).strip()[:1] in (b"", b"{")
    }
    feed(constraint, spelled('\n\n{"answer":"4"}'))
    assert ends(constraint)
    feed(constraint, spelled(EOS))


def test_J1_content_fits_whatever_was_thought() -> None:
    make = compile(json_plan(ANSWER, thinking=thinking()), WORDS)
    assert make is not None
    for seed in range(20):

        def armed() -> Armed:
            constraint = make()
            feed(constraint, spelled('{"answer": 3}', END_THINK))
            return constraint

        _, data = draw(armed, WORDS, seed)
        assert isinstance(json.loads(data)["answer"], str)


def test_J1_model_that_may_choose_to_think() -> None:
    plan = json_plan(ANSWER, thinking=thinking(inside=False))
    thinks = start(plan)
    feed(thinks, spelled(THINK, "so {", END_THINK, '{"answer":""}', EOS))
    answers = start(plan)
    feed(answers, spelled("\n", '{"answer":""}', EOS))
    late = start(plan)
    feed(late, spelled("{"))
    assert IDS[THINK] not in allowed(late)
    blank = start(plan)
    feed(blank, spelled("\n", THINK, "hm", END_THINK, "{"))


def test_J1_without_an_opener_the_model_cannot_think() -> None:
    constraint = start(json_plan(ANSWER, thinking=Thinking(IDS[END_THINK])))
    assert IDS[THINK] not in allowed(constraint)


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_J2_budget_ends_the_reasoning_and_arms_the_grammar(budget: int) -> None:
    hand_over = tuple(spelled("\n", END_THINK, "\n\n"))
    constraint = start(json_plan(ANSWER, thinking=thinking(budget=budget, hand_over=hand_over)))
    feed(constraint, spelled("x" * budget))
    for id in hand_over:
        assert allowed(constraint) == {id}
        constraint.accept(id)
    assert not ends(constraint)
    feed(constraint, spelled('{"answer":"[["}', EOS))


def test_J2_reasoning_that_ends_by_itself_has_no_hand_over() -> None:
    hand_over = tuple(spelled("\n", END_THINK, "\n\n"))
    constraint = start(json_plan(ANSWER, thinking=thinking(budget=3, hand_over=hand_over)))
    feed(constraint, spelled("ab", END_THINK, '{"answer":""}', EOS))


def test_J2_budget_of_free_text() -> None:
    hand_over = tuple(spelled(END_THINK))
    constraint = start(Plan(thinking=thinking(budget=2, hand_over=hand_over)))
    assert constraint.allowed() is None
    feed(constraint, spelled("ab"))
    assert allowed(constraint) == {IDS[END_THINK]}
    feed(constraint, hand_over)
    assert constraint.allowed() is None


def test_J2_budget_of_thinking_that_the_model_opened() -> None:
    hand_over = tuple(spelled(END_THINK))
    constraint = start(Plan(thinking=thinking(inside=False, budget=2, hand_over=hand_over)))
    feed(constraint, spelled(THINK, "ab"))
    assert allowed(constraint) == {IDS[END_THINK]}


def test_api_7_3_hand_over_needs_the_closing_marker() -> None:
    with pytest.raises(ValueError, match="closing marker"):
        compile(Plan(thinking=thinking(budget=1, hand_over=(1,))), WORDS)


def test_api_8_plans_that_ask_for_nothing_have_no_constraint() -> None:
    assert compile(Plan(), WORDS) is None
    assert compile(Plan(thinking=thinking()), WORDS) is None
    assert compile(Plan(parse_response_format({"type": "text"})), WORDS) is None


# Tools.


def test_L8_marker_arms_the_tool_grammar_from_that_token_on() -> None:
    constraint = start(Plan(tools=tools()))
    feed(constraint, spelled("Let me see. <tool_call>"))  # as text it is not the marker
    assert constraint.allowed() is None
    feed(constraint, spelled(CALL))
    assert not ends(constraint)
    assert IDS[END_CALL] not in allowed(constraint)
    feed(constraint, spelled(XML))
    assert allowed(constraint) == {IDS[END_CALL]}
    feed(constraint, spelled(END_CALL))
    assert constraint.allowed() is None  # free again
    feed(constraint, spelled("And another.", CALL, STOP, END_CALL, EOS))


@pytest.mark.parametrize(
    "text",
    [
        "\n<function=nothing>",
        "\n<function=lookup>\n<parameter=town>",
        "\n<function=lookup>\n</function>",
        '{"name": "lookup"}',
    ],
)
def test_L8_malformed_calls_cannot_be_written(text: str) -> None:
    constraint = start(Plan(tools=tools()))
    feed(constraint, spelled(CALL))
    ids = spelled(text)
    with pytest.raises(ConstraintFailed):
        list(map(constraint.accept, ids))


def test_L8_marker_of_plain_text_however_it_is_cut() -> None:
    for prefix in ("<tool_call>", "Well. <tool_call>", "<<tool_call>", "<tool<tool_call>", "</tool_call> <tool_call>"):
        constraint = start(Plan(tools=tools(dialect=Json())), PLAIN)
        feed(constraint, prefix.encode())
        assert allowed(constraint) & set(range(256)) == {ord('"')}
        feed(constraint, b'"lookup":{"x": [1]}</tool_call>')
        assert ends(constraint)
        feed(constraint, b" text <tool_call")
        feed(constraint, b'>"stop":{}</tool_call>\n')
        assert ends(constraint)


def test_L8_token_that_goes_on_after_the_marker_must_fit() -> None:
    word = {WORDS.token_bytes(id): id for id in range(PLAIN.tokenizer.vocab_size)}
    free = start(Plan(tools=tools(dialect=Json())), PLAIN)
    barred = {word[b"<tool_call>{"], word[b"<tool_call>["]}  # this dialect goes on with a quote
    mask = free.allowed()
    assert mask is not None
    assert set(np.nonzero(PLAIN.real & ~mask)[0].tolist()) == barred
    feed(free, b"<tool_call")
    assert not free.allowed()[word[b">{"]]  # type: ignore[index]
    with pytest.raises(ConstraintFailed):
        free.copy().accept(word[b">{"])
    feed(free, [word[b">"]])
    assert allowed(free) & set(range(256)) == {ord('"')}
    armed = start(Plan(tools=tools(dialect=Json())), PLAIN)
    feed(armed, [word[b"a<tool_call>"]])
    assert allowed(armed) & set(range(256)) == {ord('"')}


def test_L9_call_inside_unclosed_reasoning_is_a_call() -> None:
    for choice in ("auto", "required"):
        constraint = start(Plan(thinking=thinking(), tools=tools(choice)))
        feed(constraint, spelled("I should look that up", CALL))
        assert IDS[END_THINK] not in allowed(constraint)
        feed(constraint, spelled(XML, END_CALL))
        assert ends(constraint)
    with_format = start(json_plan(ANSWER, thinking=thinking(), tools=tools()))
    feed(with_format, spelled("hm", CALL, XML, END_CALL, EOS))


def test_L9_call_during_the_hand_over_of_a_budget_waits_for_it() -> None:
    hand_over = tuple(spelled("\n", END_THINK))
    constraint = start(Plan(thinking=thinking(budget=2, hand_over=hand_over), tools=tools("required")))
    feed(constraint, spelled("ab"))
    with pytest.raises(ConstraintFailed):
        constraint.copy().accept(IDS[CALL])
    feed(constraint, [*hand_over, *spelled("\n\n", CALL, STOP, END_CALL, EOS)])


def test_L14_at_most_one_call_where_they_are_not_parallel() -> None:
    constraint = start(Plan(tools=tools(parallel=False)))
    feed(constraint, spelled("Well", CALL, XML, END_CALL))
    assert only_eos(constraint)
    silent = start(Plan(tools=tools(parallel=False)))
    feed(silent, spelled("No call at all.", EOS))


def test_api_7_2_required_is_at_least_one_call_then_eos() -> None:
    constraint = start(Plan(tools=tools("required")))
    assert not ends(constraint)
    with pytest.raises(ConstraintFailed):
        constraint.copy().accept(ord("H"))
    feed(constraint, spelled("\n\n", CALL, XML, END_CALL))
    assert ends(constraint)
    feed(constraint, spelled("\n", CALL, STOP, END_CALL, EOS))


def test_api_7_2_required_without_parallel_is_exactly_one() -> None:
    constraint = start(Plan(tools=tools("required", parallel=False)))
    feed(constraint, spelled(CALL, STOP, END_CALL))
    assert IDS[EOS] in allowed(constraint)
    feed(constraint, spelled("\n"))
    assert IDS[CALL] not in allowed(constraint)


def test_api_7_2_named_is_that_tool_alone() -> None:
    constraint = start(Plan(tools=tools({"type": "function", "function": {"name": "stop"}})))
    feed(constraint, spelled(CALL, "\n<function="))
    assert all(b"stop>".startswith(WORDS.token_bytes(id)) for id in allowed(constraint))


def test_api_7_3_turn_end_is_forced_after_the_last_forced_call() -> None:
    words = type(WORDS).of(WORDS.tokenizer, WORDS.vocab_size, {IDS[EOS], IDS[OBSERVATION]})
    for parallel in (False, True):
        constraint = start(Plan(tools=tools("required", parallel=parallel, turn_end=IDS[OBSERVATION])), words)
        feed(constraint, spelled(CALL, STOP, END_CALL))
        assert allowed(constraint) & words.eos == {IDS[OBSERVATION]}
    plain = start(Plan(tools=tools("auto", turn_end=IDS[OBSERVATION])), words)
    feed(plain, spelled("text", EOS))


@pytest.mark.parametrize("think", [False, True])
def test_L7_choice_none_forbids_the_marker(think: bool) -> None:
    plan = Plan(thinking=thinking() if think else None, tools=tools("none"))
    constraint = start(plan)
    for text in ("a", " <tool_call>", END_THINK if think else "b", "c"):
        mask = constraint.allowed()
        assert mask is not None
        assert set(np.nonzero(WORDS.real & ~mask)[0].tolist()) == {IDS[CALL]}
        feed(constraint, spelled(text))
    with pytest.raises(ConstraintFailed):
        constraint.accept(IDS[CALL])


def test_L7_choice_none_forbids_the_marker_of_plain_text() -> None:
    constraint = start(Plan(tools=tools("none", dialect=Json())), PLAIN)
    feed(constraint, b"<tool_call")
    mask = constraint.allowed()
    assert mask is not None
    barred = {PLAIN.token_bytes(int(id)) for id in np.nonzero(PLAIN.real & ~mask)[0]}
    assert barred == {b">", b"><", b">\n", b">{", b"a<tool_call>", b"<tool_call>{", b"<tool_call>["}
    feed(constraint, b"-")
    feed(constraint, b">")


def test_L7_choice_none_with_a_format_is_json() -> None:
    constraint = start(json_plan(ANSWER, tools=tools("none")))
    assert IDS[CALL] not in allowed(constraint)
    feed(constraint, spelled('{"answer":""}', EOS))


def test_api_7_2_json_or_tools_commits_at_the_first_value() -> None:
    plan = json_plan(ANSWER, tools=tools())
    value = start(plan)
    assert {IDS[CALL], ord("{")} <= allowed(value)
    feed(value, spelled("\n"))
    assert {IDS[CALL], ord("{")} <= allowed(value)
    feed(value, spelled("{"))
    assert IDS[CALL] not in allowed(value)
    feed(value, spelled('"answer":"<tool_call>"}'))
    assert IDS[CALL] not in allowed(value)
    feed(value, spelled(EOS))
    call = start(plan)
    feed(call, spelled(CALL, XML, END_CALL))
    assert ord("{") not in allowed(call)
    feed(call, spelled("\n", CALL, STOP, END_CALL, EOS))


def test_api_7_3_strict_call_cannot_close_without_its_keys() -> None:
    constraint = start(Plan(tools=tools("required")))
    feed(constraint, spelled(CALL, "\n<function=lookup>\n<parameter=city>\nParis\n</parameter>\n"))
    ahead = constraint.copy()
    feed(ahead, spelled("</function>\n"))  # still text of the value
    assert IDS[END_CALL] not in allowed(ahead)
    feed(constraint, spelled("<parameter=days>\n"))
    assert {WORDS.token_bytes(id)[:1] for id in allowed(constraint)} <= {bytes([byte]) for byte in b"-0123456789"}


def test_api_7_3_drafts_are_copied_in_every_phase() -> None:
    plan = Plan(thinking=thinking(), tools=tools())
    ids = spelled("so", CALL, XML, END_CALL, "then", CALL, STOP, END_CALL, EOS)
    constraint = start(plan)
    for at in range(len(ids)):
        ahead = constraint.copy()
        feed(ahead, ids[at : at + 4])
        before = constraint.allowed()
        again = constraint.copy().allowed()
        assert (before is None and again is None) or np.array_equal(before, again)  # type: ignore[arg-type]
        constraint.accept(ids[at])


def test_api_7_3_ignored_eos_does_not_change_free_text() -> None:
    constraint = start(Plan(tools=tools()))
    feed(constraint, spelled("a", EOS, "b", CALL))
    assert constraint.allowed() is not None
