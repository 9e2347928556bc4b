"""What an answer may be made of: tools and the choice among them, and the form of the content (spec/api.md §7, §8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dgpp.serve.errors import CONSTRAINED_UNSUPPORTED, TOOLS_UNSUPPORTED, ApiError, kind_of
from dgpp.serve.requests.fields import Body, Field, Shaped, nullable
from dgpp.text.constraints import GrammarError, ResponseFormat, parse_response_format
from dgpp.text.message_error import MessageError
from dgpp.text.tools import Dialect, Tool, ToolChoice, parse_parallel, parse_tool_choice, parse_tools

T = TypeVar("T")

_OBJECT: dict[str, Any] = {"type": "object"}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FUNCTION = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": _NAME,
        "description": {"type": "string"},
        "parameters": _OBJECT,
        "strict": nullable({"type": "boolean"}),
    },
}
_CUSTOM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _NAME, "description": {"type": "string"}, "format": _OBJECT},
}
_TOOL = {
    "anyOf": [
        {
            "type": "object",
            "required": ["function"],
            "properties": {"type": {"const": "function"}, "function": _FUNCTION},
        },
        {"type": "object", "required": ["custom"], "properties": {"type": {"const": "custom"}, "custom": _CUSTOM}},
    ]
}
_CHOICE = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["function", "custom", "allowed_tools"]}},
        },
    ]
}
_FORMAT = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["text", "json_object", "json_schema", "regex", "grammar"]},
        "json_schema": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": _NAME, "schema": nullable(_OBJECT), "strict": nullable({"type": "boolean"})},
        },
        "pattern": {"type": "string"},
        "grammar": _OBJECT,
    },
}


@dataclass(frozen=True)
class Output:
    """What an answer may be made of. `format` is the form of its content, where it has any."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=lambda: ToolChoice("none"))
    format: ResponseFormat = field(default_factory=ResponseFormat)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told of, and may call."""
        return self.choice.offered(self.tools)

    def needs_constraint(self) -> str | None:
        """The field for whose sake tokens must be masked; None when the model may be left to itself."""
        for index, tool in enumerate(self.tools):
            if tool.strict:
                return f"tools[{index}].function.strict"
        if self.choice.mode == "required":
            return TOOL_CHOICE.name
        if self.choice.mode == "auto" and self.choice.single:
            return PARALLEL_TOOL_CALLS.name
        return None if self.format.kind == "text" else RESPONSE_FORMAT.name


def _as_api(take: Callable[..., T], *arguments: Any) -> T:
    """What `take` returns; its own errors as the client reads them."""
    try:
        return take(*arguments)
    except MessageError as error:
        raise ApiError(kind_of(error.code), str(error), error.param) from None
    except GrammarError as error:
        raise grammar_refusal(error) from None


def grammar_refusal(error: GrammarError) -> ApiError:
    """The refusal of a schema or grammar that cannot be enforced."""
    return ApiError(kind_of(error.code), error.message, error.pointer)


TOOLS = Shaped[tuple[Tool, ...]](
    "tools",
    "Functions and custom tools that the model may call.",
    nullable({"type": "array", "items": _TOOL, "maxItems": 128}),
    lambda value: _as_api(parse_tools, value),
    (),
)
TOOL_CHOICE = Shaped[Any](
    "tool_choice",
    "Which tools may or must be called; auto where there are tools.",
    nullable(_CHOICE),
    lambda value: value,
    None,
)
PARALLEL_TOOL_CALLS = Shaped[bool](
    "parallel_tool_calls",
    "Whether an answer may hold several calls.",
    nullable({"type": "boolean", "default": True}),
    lambda value: _as_api(parse_parallel, value),
    True,
)
RESPONSE_FORMAT = Shaped[ResponseFormat](
    "response_format",
    "The form of the content, which is enforced or refused; regex and grammar are extensions.",
    nullable(_FORMAT),
    lambda value: _as_api(parse_response_format, value),
    ResponseFormat(),
)
OUTPUT_FIELDS: tuple[Field, ...] = (TOOLS, TOOL_CHOICE, PARALLEL_TOOL_CALLS, RESPONSE_FORMAT)


def read_output(body: Body, dialect: Dialect | None, constrains: bool) -> Output:
    """The tools, choice and form that `body` asks for, of a model that writes calls as `dialect` says (None: not at
    all), on an engine that `constrains` or not. Raises ApiError."""
    tools = TOOLS.read(body)
    if tools and dialect is None:
        raise ApiError(
            TOOLS_UNSUPPORTED, "This model's chat template has no tool calls that are known here.", TOOLS.name
        )
    parallel = body.get(PARALLEL_TOOL_CALLS.name)
    choice = _as_api(parse_tool_choice, TOOL_CHOICE.read(body), tools, parallel is not False)
    PARALLEL_TOOL_CALLS.read(body)
    output = Output(tools, choice, RESPONSE_FORMAT.read(body))
    refuse_unconstrained(output.needs_constraint(), constrains)
    return output


def read_format(body: Body, constrains: bool) -> ResponseFormat:
    """The form that `body` asks for. Raises ApiError."""
    form = RESPONSE_FORMAT.read(body)
    refuse_unconstrained(Output(format=form).needs_constraint(), constrains)
    return form


def refuse_unconstrained(name: str | None, constrains: bool) -> None:
    """Raises ApiError for the field `name`, which needs masks, on an engine without them."""
    if name is not None and not constrains:
        raise ApiError(CONSTRAINED_UNSUPPORTED, f"{name} needs constrained decoding, which this engine has not.", name)
