from __future__ import annotations

import json
from typing import Any

import pytest

from dgpp.text.message_error import MessageError
from dgpp.text.messages import Message, parse_messages
from dgpp.text.tools.history import ToolCall


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(*parts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part} for part in parts]


def assistant(content: Any = None, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


def call(arguments: Any, **keys: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": arguments}, **keys}


def one(message: dict[str, Any]) -> Message:
    [parsed] = parse_messages([message])
    return parsed


def refused(value: Any) -> MessageError:
    with pytest.raises(MessageError) as error:
        parse_messages(value)
    assert error.value.message
    return error.value


@pytest.mark.parametrize("value", [None, [], {}, "hi", 3])
def test_messages_must_be_a_non_empty_array(value: Any) -> None:
    assert refused(value).param == "messages"


@pytest.mark.parametrize("role", [None, "function", "System", "", 3, ["user"], {}])
def test_an_unknown_role_is_refused(role: Any) -> None:
    assert refused([user("a"), {"role": role, "content": "x"}]).param == "messages[1].role"


def test_T1_developer_is_system() -> None:
    assert one({"role": "developer", "content": "x"}) == Message("system", "x")


def test_T3_leading_instructions_are_one_message_in_order() -> None:
    first = [{"role": "system", "content": "a"}, {"role": "developer", "content": text("b", "c")}]
    assert parse_messages([*first, {"role": "system", "content": "d"}, user("hi")]) == [
        Message("system", "a\n\nbc\n\nd"),
        Message("user", "hi"),
    ]


def test_T3_a_late_instruction_stays_where_it_is() -> None:
    value = [{"role": "system", "content": "a"}, user("hi"), {"role": "developer", "content": "b"}]
    assert [message.role for message in parse_messages(value)] == ["system", "user", "system"]


def test_only_instructions() -> None:
    assert parse_messages([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]) == [
        Message("system", "a\n\nb")
    ]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_T6_a_string_or_text_parts_for_every_role(role: str) -> None:
    keys = {"role": role, "tool_call_id": "c1"}
    for content, expected in (("ab", "ab"), (text("a", "b"), "ab"), ([], ""), (text("{", '"x": 1}'), '{"x": 1}')):
        assert one({**keys, "content": content}).content == expected


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        ({"type": "image_url", "image_url": {"url": "data:"}}, ".type", "unsupported_content_type"),
        ({"type": "input_audio"}, ".type", "unsupported_content_type"),
        ({"type": None}, ".type", "unsupported_content_type"),
        ({"type": ["text"]}, ".type", "unsupported_content_type"),
        ({"type": "text"}, ".text", None),
        ({"type": "text", "text": 3}, ".text", None),
        (
            {"type": "text", "text": "a", "prompt_cache_breakpoint": {}},
            ".prompt_cache_breakpoint",
            "unsupported_parameter",
        ),
        ("a", "", None),
        (None, "", None),
    ],
)
def test_T6_a_part_that_is_not_text_is_named(role: str, part: Any, param: str, code: str | None) -> None:
    error = refused([{"role": role, "tool_call_id": "c1", "content": [*text("a"), part]}])
    assert (error.param, error.code) == (f"messages[0].content[1]{param}", code)


def test_a_part_without_a_type() -> None:
    assert refused([user([{"text": "a"}])]).param == "messages[0].content[0].type"


@pytest.mark.parametrize("content", [None, 3, {"type": "text"}, True])
def test_content_of_system_and_user_is_required(content: Any) -> None:
    for role in ("system", "user", "tool"):
        assert refused([{"role": role, "content": content, "tool_call_id": "c"}]).param == "messages[0].content"
    assert refused([{"role": "user"}]).param == "messages[0].content"


def test_null_content_of_an_assistant_needs_something_else() -> None:
    for message in (
        assistant(None),
        {"role": "assistant"},
        assistant(None, tool_calls=[]),
        assistant(None, refusal=None),
    ):
        assert refused([message]).param == "messages[0].content"
    assert one(assistant(None, refusal="no")).content == "no"
    assert one(assistant(None, tool_calls=[call("{}")])).content == ""
    assert one(assistant(None, reasoning_content="hm")) == Message("assistant", "", reasoning="hm")
    assert one(assistant("yes", refusal="no")).content == "yes"
    assert refused([assistant(None, refusal=3)]).param == "messages[0].refusal"


def test_a_refusal_part_stands_alone() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    assert one(assistant([refusal])).content == "no"
    assert refused([assistant([*text("a"), refusal])]).code == "unsupported_content_type"
    assert refused([user([refusal])]).code == "unsupported_content_type"
    assert refused([assistant([{"type": "refusal"}])]).param == "messages[0].content[0].refusal"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Paris", "n": [1, 2.5, null]}', {"city": "Paris", "n": [1, 2.5, None]}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("", {}),
        ("  \n", {}),
        (None, {}),
        ("null", {}),
    ],
)
def test_T4_arguments_become_a_mapping(arguments: Any, expected: dict[str, Any]) -> None:
    assert one(assistant("", tool_calls=[call(arguments)])).tool_calls == (ToolCall("lookup", expected, "c1"),)


@pytest.mark.parametrize("arguments", ["{", "[1]", '"a"', "3", [1], 3, True, '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_not_an_object_are_refused(arguments: Any) -> None:
    error = refused([user("a"), assistant("", tool_calls=[call("{}"), call(arguments)])])
    assert error.param == "messages[1].tool_calls[1].function.arguments"


def test_absent_arguments_and_type() -> None:
    [parsed] = one(assistant("", tool_calls=[{"function": {"name": "f"}}])).tool_calls
    assert parsed == ToolCall("f", {})
    assert parsed.for_template() == {"type": "function", "function": {"name": "f", "arguments": {}}}


@pytest.mark.parametrize(
    ("calls", "param"),
    [
        ({}, ""),
        (["x"], "[0]"),
        ([call("{}", id=3)], "[0].id"),
        ([call("{}", type="code")], "[0].type"),
        ([call("{}", type=None)], "[0].type"),
        ([{"type": "function"}], "[0].function"),
        ([{"type": "function", "function": {"name": None}}], "[0].function.name"),
        ([{"type": "custom", "id": "", "custom": {"name": "f", "input": ""}}], "[0].id"),
        ([{"type": "custom", "id": "c", "custom": {"name": "no spaces", "input": ""}}], "[0].custom.name"),
        ([{"type": "custom", "id": "c", "custom": {"name": "f"}}], "[0].custom.input"),
    ],
)
def test_calls_that_are_malformed_are_named(calls: Any, param: str) -> None:
    assert refused([assistant("", tool_calls=calls)]).param == f"messages[0].tool_calls{param}"


def test_a_custom_call_is_a_function_with_one_argument() -> None:
    custom = {"type": "custom", "id": "c9", "custom": {"name": "sh", "input": "ls | wc"}}
    assert one(assistant("", tool_calls=[custom])).tool_calls == (ToolCall("sh", {"input": "ls | wc"}, "c9"),)


def test_T8_thinking_parts_become_reasoning() -> None:
    parts = [
        {"type": "thinking", "thinking": "one", "signature": "x"},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "thinking", "thinking": ""},
        {"type": "thinking", "thinking": "two"},
        *text("hi"),
    ]
    assert one(assistant(parts)) == Message("assistant", "hi", reasoning="one\n\ntwo")
    assert one(assistant(parts[:-1])) == Message("assistant", "", reasoning="one\n\ntwo")
    assert one(assistant([parts[1]])) == Message("assistant", "")
    for explicit in ("given", ""):
        assert one(assistant(parts, reasoning_content=explicit)).reasoning == explicit
    assert one(assistant(parts, reasoning_content=None)).reasoning == "one\n\ntwo"
    assert refused([assistant([{"type": "thinking", "thinking": 3}])]).param == "messages[0].content[0].thinking"
    assert refused([user(parts)]).code == "unsupported_content_type"


def test_T9_both_names_of_reasoning_mean_the_same() -> None:
    expected = Message("assistant", "a", reasoning="r")
    assert one(assistant("a", reasoning_content="r")) == expected
    assert one(assistant("a", reasoning="r")) == expected
    assert one(assistant("a", reasoning_content="r", reasoning="s")) == expected
    assert one(assistant("a", reasoning_content=None, reasoning="r")) == expected
    assert one(assistant("a", reasoning_content=None)).reasoning is None
    assert refused([assistant("a", reasoning_content=3)]).param == "messages[0].reasoning_content"
    assert refused([assistant("a", reasoning={})]).param == "messages[0].reasoning"


def test_tool_results() -> None:
    assert one({"role": "tool", "tool_call_id": "c1", "content": "ok"}) == Message("tool", "ok", tool_call_id="c1")
    native = [{"name": "a", "output": {"x": 1}}]
    assert one({"role": "tool", "content": native}) == Message("tool", tuple(native))
    assert one({"role": "tool", "content": native}).for_template()["content"] == native
    for id in (None, 3):
        assert refused([{"role": "tool", "content": "ok", "tool_call_id": id}]).param == "messages[0].tool_call_id"
    assert refused([{"role": "tool", "content": native, "tool_call_id": 3}]).param == "messages[0].tool_call_id"


@pytest.mark.parametrize("key", ["audio", "function_call"])
def test_keys_that_are_not_supported(key: str) -> None:
    error = refused([assistant("a", **{key: {}})])
    assert (error.param, error.code) == (f"messages[0].{key}", "unsupported_parameter")
    assert one(assistant("a", **{key: None})) == Message("assistant", "a")


def test_names() -> None:
    assert one({**user("a"), "name": "bob"}).for_template() == {"role": "user", "content": "a", "name": "bob"}
    for name in (None, 3):
        assert refused([{**user("a"), "name": name}]).param == "messages[0].name"


def test_other_keys_reach_the_template() -> None:
    message = one({**user("a"), "reasoning": 3, "mood": ["calm"]})
    assert message.for_template() == {"role": "user", "content": "a", "reasoning": 3, "mood": ["calm"]}


def test_what_a_template_reads() -> None:
    message = one(assistant("a", reasoning="r", tool_calls=[call('{"x": 1}')]))
    assert message.for_template() == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "r",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": {"x": 1}}}],
    }


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (r'{"role":"user","content":"emoji \ud83d"}', "messages[0].content"),
        (r'{"role":"user","content":[{"type":"text","text":"\ude00"}]}', "messages[0].content[0].text"),
        (r'{"role":"user","content":"a","name":"\ud83d"}', "messages[0].name"),
        (r'{"role":"user","content":"a","x":{"y":["\ud83d"]}}', "messages[0].x.y[0]"),
        (r'{"role":"user","content":"a","\ud83d":1}', "messages[0]"),
        (
            r'{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":\"\ud83d\"}"}}]}',
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            r'{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":\"\\ud83d\"}"}}]}',
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_A5_an_unpaired_surrogate_is_named(message: str, param: str) -> None:
    error = refused([json.loads(message)])
    assert (error.param, error.code) == (param, None)
    error.message.encode("utf-8")


def test_A5_a_pair_is_a_character() -> None:
    assert one(json.loads(r'{"role":"user","content":"\ud83d\ude00"}')).content == "😀"


def test_a_message_nested_deeper_than_the_stack_is_no_failure() -> None:
    deep: Any = "leaf"
    for _ in range(20_000):
        deep = [deep]
    assert one({**user("a"), "x": deep}).content == "a"
