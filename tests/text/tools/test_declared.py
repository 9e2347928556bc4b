"""spec/api.md §7.1, §7.2: every way in which tools and a choice among them can be right or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from dgpp.text.message_error import MessageError
from dgpp.text.tools.declared import (
    GrammarFormat,
    TextFormat,
    Tool,
    ToolChoice,
    parse_parallel,
    parse_tool_choice,
    parse_tools,
)

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}


def function(name: Any = "f", **keys: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **keys}}


def custom(name: Any = "c", **keys: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **keys}}


def grammar(**keys: Any) -> dict[str, Any]:
    return custom(format={"type": "grammar", "grammar": keys})


@pytest.mark.parametrize("value", [None, []])
def test_api_7_1_null_and_no_tools(value: Any) -> None:
    assert parse_tools(value) == ()


def test_api_7_1_a_function_wrapped_and_flat() -> None:
    body = {"name": "f", "description": "d", "parameters": PARAMETERS, "strict": True}
    wanted = Tool("f", "d", PARAMETERS, True, "function", None, body)
    assert parse_tools([{"type": "function", "function": body}]) == (wanted,)
    assert parse_tools([{"function": body}]) == (wanted,)
    [flat] = parse_tools([body])
    assert flat == wanted
    [typed] = parse_tools([{"type": "function", **body}])
    assert (typed.name, typed.parameters, typed.strict) == ("f", PARAMETERS, True)
    [least] = parse_tools([function(strict=None)])
    assert (least.description, least.parameters, least.strict) == (None, None, False)


def test_api_7_1_a_custom_tool_and_its_formats() -> None:
    assert parse_tools([custom()])[0].format == TextFormat()
    assert parse_tools([custom(format={"type": "text"})])[0].format == TextFormat()
    assert parse_tools([{"type": "custom", "name": "c"}])[0].kind == "custom"
    for syntax in ("regex", "lark"):
        [tool] = parse_tools([grammar(syntax=syntax, definition="a+")])
        assert tool.format == GrammarFormat(syntax, "a+")  # type: ignore[arg-type]


WRONG: list[tuple[Any, str, str | None]] = [
    ({}, "tools", None),
    ("f", "tools", None),
    ([function(f"f{at}") for at in range(129)], "tools", None),
    ([function(), 3], "tools[1]", None),
    ([{"type": "web_search"}], "tools[0].type", None),
    ([{"type": 3, "function": {"name": "f"}}], "tools[0].type", None),
    ([{"type": "function"}], "tools[0].function", None),
    ([{"type": "function", "function": "f"}], "tools[0].function", None),
    ([{}], "tools[0].function", None),
    ([{"type": "custom", "custom": None}], "tools[0].custom", None),
    *(([function(name)], "tools[0].function.name", None) for name in (None, 3, "", "a b", "ä", "f" * 65, "f\n")),
    ([{"name": "a.b"}], "tools[0].name", None),
    ([custom("")], "tools[0].custom.name", None),
    ([function(), function()], "tools[1].function.name", None),
    ([function(), custom("f")], "tools[1].custom.name", None),
    ([function(description=None)], "tools[0].function.description", None),
    ([function(description=3)], "tools[0].function.description", None),
    ([custom(description=[])], "tools[0].custom.description", None),
    ([function(parameters=None)], "tools[0].function.parameters", None),
    ([function(parameters=[])], "tools[0].function.parameters", None),
    ([function(parameters={"type": "string"})], "tools[0].function.parameters.type", None),
    ([function(parameters={"properties": []})], "tools[0].function.parameters.properties", None),
    ([function(parameters={"required": "city"})], "tools[0].function.parameters.required", None),
    ([function(parameters={"required": [1]})], "tools[0].function.parameters.required", None),
    ([function(strict=1)], "tools[0].function.strict", None),
    ([custom(format="text")], "tools[0].custom.format", None),
    ([custom(format={})], "tools[0].custom.format.type", None),
    ([custom(format={"type": "json"})], "tools[0].custom.format.type", None),
    ([custom(format={"type": "grammar"})], "tools[0].custom.format.grammar", None),
    ([grammar(definition="a")], "tools[0].custom.format.grammar.syntax", None),
    ([grammar(syntax="ebnf", definition="a")], "tools[0].custom.format.grammar.syntax", None),
    ([grammar(syntax="regex")], "tools[0].custom.format.grammar", "invalid_grammar"),
    ([grammar(syntax="lark", definition="")], "tools[0].custom.format.grammar", "invalid_grammar"),
    ([function(description="\ud83d")], "tools[0].function.description", None),
    ([function(parameters={"properties": {"\ud83d": {}}})], "tools[0].function.parameters.properties", None),
]


@pytest.mark.parametrize(("value", "param", "code"), WRONG)
def test_api_2_wrong_tools_are_named(value: Any, param: str, code: str | None) -> None:
    with pytest.raises(MessageError) as error:
        parse_tools(value)
    assert (error.value.param, error.value.code) == (param, code)
    assert "tools" in error.value.message


def test_api_7_1_128_tools_are_allowed() -> None:
    assert len(parse_tools([function(f"f{at}") for at in range(128)])) == 128


def test_api_7_1_templates_see_the_known_fields_in_the_order_of_the_request() -> None:
    body = {"strict": True, "x": 1, "parameters": PARAMETERS, "name": "f", "namespace": "n", "description": "d"}
    [tool] = parse_tools([{"function": body, "type": "function", "x": 1}])
    rendered = tool.for_template()
    assert list(rendered) == ["type", "function"]
    assert list(rendered["function"]) == ["strict", "parameters", "name", "description"]
    assert list(tool.for_template(namespace=True)["function"])[3] == "namespace"


def test_api_7_1_a_custom_tool_is_rendered_as_a_function_of_one_input() -> None:
    tools = parse_tools([custom(description="Runs it.")])
    rendered = tools[0].for_template()["function"]
    assert rendered["name"] == "c"
    assert rendered["description"].startswith("Runs it. ")
    assert "`input`" in rendered["description"]
    assert rendered["parameters"]["properties"] == {"input": {"type": "string"}}
    assert (rendered["parameters"]["required"], rendered["parameters"]["additionalProperties"]) == (["input"], False)
    [bounded] = parse_tools([grammar(syntax="regex", definition="[a-z]+")])
    assert "[a-z]+" in bounded.for_template()["function"]["description"]


TOOLS = parse_tools([function("f"), function("g"), custom("c")])


def allowed(mode: Any, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("value", "parallel", "choice"),
    [
        (None, True, ToolChoice("auto")),
        ("auto", True, ToolChoice("auto")),
        ("auto", False, ToolChoice("auto", single=True)),
        ("none", True, ToolChoice("none")),
        ("required", True, ToolChoice("required")),
        ("required", False, ToolChoice("required", single=True)),
        (function("f"), True, ToolChoice("required", ("f",), single=True)),
        ({"type": "function", "name": "g"}, True, ToolChoice("required", ("g",), single=True)),
        (custom("c"), True, ToolChoice("required", ("c",), single=True)),
        (allowed("auto", function("g"), custom("c")), True, ToolChoice("auto", ("g", "c"))),
        (allowed("required", {"type": "function", "name": "f"}), False, ToolChoice("required", ("f",), single=True)),
    ],
)
def test_api_7_2_choices(value: Any, parallel: bool, choice: ToolChoice) -> None:
    assert parse_tool_choice(value, TOOLS, parallel) == choice


def test_api_7_2_without_tools_nothing_can_be_chosen() -> None:
    assert parse_tool_choice(None, (), True) == parse_tool_choice("none", (), True) == ToolChoice("none")
    for value in ("auto", "required", function("f"), allowed("auto", function("f"))):
        with pytest.raises(MessageError) as error:
            parse_tool_choice(value, (), True)
        assert error.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("any", "tool_choice"),
        (3, "tool_choice"),
        ([], "tool_choice"),
        ({}, "tool_choice"),
        ({"type": "tool"}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        (function("h"), "tool_choice.function.name"),
        (function("c"), "tool_choice.function.name"),
        (custom("f"), "tool_choice.custom.name"),
        ({"type": "function", "name": "h"}, "tool_choice.name"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        (allowed("none", function("f")), "tool_choice.allowed_tools.mode"),
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", function("f"), function("f")), "tool_choice.allowed_tools.tools[1]"),
        (allowed("auto", function("h")), "tool_choice.allowed_tools.tools[0].function.name"),
        (allowed("auto", custom("f")), "tool_choice.allowed_tools.tools[0].custom.name"),
        (allowed("auto", {"type": "mcp"}), "tool_choice.allowed_tools.tools[0]"),
        (allowed("auto", "f"), "tool_choice.allowed_tools.tools[0]"),
    ],
)
def test_api_2_wrong_choices_are_named(value: Any, param: str) -> None:
    with pytest.raises(MessageError) as error:
        parse_tool_choice(value, TOOLS, True)
    assert (error.value.param, error.value.code) == (param, None)


def test_api_7_2_only_the_tools_that_may_be_called_are_offered() -> None:
    assert ToolChoice("auto").offered(TOOLS) == ToolChoice("required").offered(TOOLS) == TOOLS
    assert ToolChoice("none").offered(TOOLS) == ()
    assert [tool.name for tool in ToolChoice("auto", ("c", "f")).offered(TOOLS)] == ["f", "c"]


def test_api_3_parallel_tool_calls() -> None:
    assert [parse_parallel(value) for value in (None, True, False)] == [True, True, False]
    for value in (0, "false", []):
        with pytest.raises(MessageError) as error:
            parse_parallel(value)
        assert error.value.param == "parallel_tool_calls"
