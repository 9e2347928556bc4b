"""The tools that a request declares, and its choice among them (spec/api.md §7.1, §7.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dgpp.text.events import ToolKind
from dgpp.text.message_error import MessageError
from dgpp.text.unicode_check import surrogate_path

MAX_TOOLS = 128

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RENDERED = ("name", "description", "parameters", "strict")


@dataclass(frozen=True)
class TextFormat:
    """The input of a custom tool is any text."""


@dataclass(frozen=True)
class GrammarFormat:
    """The input of a custom tool is a text of this regular expression or Lark grammar."""

    syntax: Literal["regex", "lark"]
    definition: str


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call. `source` is the object that held its fields in the request."""

    name: str
    description: str | None
    parameters: Mapping[str, Any] | None
    strict: bool
    kind: ToolKind
    format: TextFormat | GrammarFormat | None
    source: Mapping[str, Any]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments; a custom tool has the one argument `input`."""
        if self.kind == "function":
            return self.parameters or {}
        return {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
            "additionalProperties": False,
        }

    def for_template(self, *, namespace: bool = False) -> dict[str, Any]:
        """The mapping that chat templates read: the known fields in the order of the request, a custom tool as a
        function. `namespace` keeps the field of this name, which the DeepSeek format knows."""
        keys = (*_RENDERED, "namespace") if namespace else _RENDERED
        if self.kind == "function":
            return {"type": "function", "function": {key: value for key, value in self.source.items() if key in keys}}
        about = " ".join(filter(None, (self.description, _input_sentence(self.format))))
        return {"type": "function", "function": {"name": self.name, "description": about, "parameters": self.schema}}


@dataclass(frozen=True)
class ToolChoice:
    """Which of the tools may or must be called. `names`: only these, None for all. `single`: at most one call."""

    mode: Literal["auto", "none", "required"]
    names: tuple[str, ...] | None = None
    single: bool = False

    def offered(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that the model is told of, and may call."""
        if self.mode == "none":
            return ()
        return tuple(tool for tool in tools if self.names is None or tool.name in self.names)


def parse_tools(value: Any) -> tuple[Tool, ...]:
    """The tools of a request's `tools` value; none for null.

    A function is `{type, function: {name, ...}}`, or the inner object alone. Raises MessageError naming the field.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MessageError("tools", "tools must be an array")
    if len(value) > MAX_TOOLS:
        raise MessageError("tools", f"tools has {len(value)} entries; at most {MAX_TOOLS} are allowed")
    if (where := surrogate_path(value, "tools")) is not None:
        raise MessageError(where, f"{where} holds an unpaired surrogate, which is not Unicode text")
    tools: list[Tool] = []
    for index, item in enumerate(value):
        tool, at = _parse_tool(item, f"tools[{index}]")
        if any(tool.name == other.name for other in tools):
            raise MessageError(f"{at}.name", f"{at}.name {tool.name!r} is declared twice")
        tools.append(tool)
    return tuple(tools)


def parse_parallel(value: Any) -> bool:
    """The value of `parallel_tool_calls`; True for null. Raises MessageError."""
    if value is None or isinstance(value, bool):
        return value is not False
    raise MessageError("parallel_tool_calls", "parallel_tool_calls must be true or false")


def parse_tool_choice(value: Any, tools: Sequence[Tool], parallel: bool) -> ToolChoice:
    """The choice of a request's `tool_choice` value among its tools; null means auto where there are tools.

    `parallel` False allows one call at most. Raises MessageError naming the field.
    """
    if value is None:
        return ToolChoice("auto", single=not parallel) if tools else ToolChoice("none")
    if value == "none":
        return ToolChoice("none")
    if not tools:
        raise MessageError("tool_choice", "tool_choice other than none needs tools")
    match value:
        case "auto" | "required":
            return ToolChoice(value, single=not parallel)
        case {"type": "function" | "custom"}:
            return ToolChoice("required", (_declared_name(value, tools, "tool_choice"),), single=True)
        case {"type": "allowed_tools"}:
            return _allowed_tools(value.get("allowed_tools"), tools, parallel)
        case {"type": _}:
            at = "tool_choice.type"
            raise MessageError(at, f"{at} must be function, custom or allowed_tools")
    raise MessageError("tool_choice", "tool_choice must be none, auto, required, or an object that names tools")


def _parse_tool(value: Any, at: str) -> tuple[Tool, str]:
    """The tool, and the path of the object that holds its fields."""
    if not isinstance(value, dict):
        raise MessageError(at, f"{at} must be an object")
    kind = value.get("type", "function")
    if kind not in ("function", "custom"):
        raise MessageError(f"{at}.type", f"{at}.type must be function or custom")
    body, at = _named(value, kind, at)
    name = body.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise MessageError(f"{at}.name", f"{at}.name must be 1 to 64 of A-Z a-z 0-9 _ -")
    description = body.get("description")
    if "description" in body and not isinstance(description, str):
        raise MessageError(f"{at}.description", f"{at}.description must be a string")
    if kind == "custom":
        return Tool(name, description, None, False, "custom", _parse_format(body.get("format"), at), body), at
    strict = body.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise MessageError(f"{at}.strict", f"{at}.strict must be true or false")
    return Tool(name, description, _parse_parameters(body, at), strict is True, "function", None, body), at


def _named(value: Mapping[str, Any], kind: str, at: str) -> tuple[Mapping[str, Any], str]:
    """The object that holds the fields of a tool, and its path: that under its kind, or `value` itself in the flat
    form."""
    if kind not in value and "name" in value:
        return value, at
    at = f"{at}.{kind}"
    body = value.get(kind)
    if not isinstance(body, dict):
        raise MessageError(at, f"{at} must be an object with a name")
    return body, at


def _parse_parameters(body: Mapping[str, Any], at: str) -> Mapping[str, Any] | None:
    if "parameters" not in body:
        return None
    at = f"{at}.parameters"
    schema = body["parameters"]
    if not isinstance(schema, dict):
        raise MessageError(at, f"{at} must be an object: a JSON schema")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise MessageError(f"{at}.type", f"{at}.type must be object: arguments are passed by name")
    if not isinstance(schema.get("properties", {}), dict):
        raise MessageError(f"{at}.properties", f"{at}.properties must be an object")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        raise MessageError(f"{at}.required", f"{at}.required must be an array of strings")
    return schema


def _parse_format(value: Any, at: str) -> TextFormat | GrammarFormat:
    at = f"{at}.format"
    match value:
        case None | {"type": "text"}:
            return TextFormat()
        case {"type": "grammar"}:
            grammar, at = value.get("grammar"), f"{at}.grammar"
            if not isinstance(grammar, dict):
                raise MessageError(at, f"{at} must be an object with syntax and definition")
            syntax, definition = grammar.get("syntax"), grammar.get("definition")
            if syntax != "regex" and syntax != "lark":
                raise MessageError(f"{at}.syntax", f"{at}.syntax must be regex or lark")
            if not isinstance(definition, str) or not definition:
                raise MessageError(at, f"{at}.definition must be a non-empty string", "invalid_grammar")
            return GrammarFormat(syntax, definition)
        case dict():
            raise MessageError(f"{at}.type", f"{at}.type must be text or grammar")
    raise MessageError(at, f"{at} must be an object with a type")


def _input_sentence(format: TextFormat | GrammarFormat | None) -> str:
    """What the model is told about the one argument of a custom tool."""
    if not isinstance(format, GrammarFormat):
        return "Give the whole input of this tool as text in `input`."
    syntax = "regular expression" if format.syntax == "regex" else "Lark grammar"
    return f"Give the whole input of this tool as text in `input`; it has to match this {syntax}:\n{format.definition}"


def _allowed_tools(value: Any, tools: Sequence[Tool], parallel: bool) -> ToolChoice:
    at = "tool_choice.allowed_tools"
    if not isinstance(value, dict):
        raise MessageError(at, f"{at} must be an object with mode and tools")
    mode, entries = value.get("mode"), value.get("tools")
    if mode != "auto" and mode != "required":
        raise MessageError(f"{at}.mode", f"{at}.mode must be auto or required")
    if not isinstance(entries, list) or not entries:
        raise MessageError(f"{at}.tools", f"{at}.tools must be a non-empty array")
    names: list[str] = []
    for index, entry in enumerate(entries):
        here = f"{at}.tools[{index}]"
        if not isinstance(entry, dict) or entry.get("type") not in ("function", "custom"):
            raise MessageError(here, f"{here} must be an object with the type function or custom, and a name")
        name = _declared_name(entry, tools, here)
        if name in names:
            raise MessageError(here, f"{here} names {name!r} a second time")
        names.append(name)
    return ToolChoice(mode, tuple(names), single=not parallel)


def _declared_name(entry: Mapping[str, Any], tools: Iterable[Tool], at: str) -> str:
    """The name in `{type, function: {name}}`, or in the flat form of it."""
    kind = entry["type"]
    body, at = _named(entry, kind, at)
    name = body.get("name")
    if not isinstance(name, str):
        raise MessageError(f"{at}.name", f"{at}.name must be a string")
    if not any(tool.name == name and tool.kind == kind for tool in tools):
        raise MessageError(f"{at}.name", f"{at}.name: no {kind} tool named {name!r} is declared")
    return name
