"""The values of tool arguments: for each schema the rule that a tool grammar uses (spec/api.md §7.3)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgpp.text.constraints.builder import Builder
from dgpp.text.constraints.errors import GrammarError
from dgpp.text.constraints.keywords import DEFINITIONS, NARROWING
from dgpp.text.constraints.lark_check import check_lark, regex_lark
from dgpp.text.constraints.patterns import translate
from dgpp.text.constraints.plan import ToolLike
from dgpp.text.constraints.schema import checked_schema
from dgpp.text.constraints.schema_checked import CheckedSchema, as_text, blamed, value_grammar
from dgpp.text.constraints.tool_strict import refuse_unenforced

log = logging.getLogger(__name__)

_CLOSED: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_GRAMMAR = "x-dgpp-grammar"
_MOST_WARNINGS = 1000
_warned: set[str] = set()


@dataclass(frozen=True)
class _Origin:
    """Where a schema is: a tool, and the name of one of its properties or "" for its arguments."""

    index: int
    name: str
    schema: Mapping[str, Any]


class ToolValues:
    """Gives tool grammars their values, each as the name of a grammar in `grammars` that stands beside them.

    The schemas of strict tools are checked whole at once, so that what is refused has its path in the request.
    """

    def __init__(self, tools: Sequence[ToolLike], builder: Builder) -> None:
        self.grammars: list[dict[str, Any]] = []
        self._tools = tools
        self._whole: set[int] = set()  # tools whose arguments follow their schema as one JSON value
        self._builder = builder
        self._wholes: dict[str, list[_Origin]] = {}
        self._parts: dict[str, list[_Origin]] = {}
        for index, tool in enumerate(tools):
            self._remember(index, tool.parameters)
            if tool.kind == "custom":
                self._check_custom(tool.format, f"tools[{index}].custom.format.grammar")
            elif tool.strict and tool.parameters is not None:
                at = f"tools[{index}].function.parameters"
                self._verify(checked_schema(tool.parameters, at, builder.limits))

    def _remember(self, index: int, root: Mapping[str, Any] | None) -> None:
        if root is None:
            return
        for whole in (root, {**_CLOSED, **root}):
            self._wholes.setdefault(as_text(whole), []).append(_Origin(index, "", root))
        properties = root.get("properties")
        for name, value in properties.items() if isinstance(properties, Mapping) else ():
            if isinstance(value, Mapping):
                plain = {key: inner for key, inner in value.items() if key not in DEFINITIONS}
                self._parts.setdefault(as_text(plain), []).append(_Origin(index, name, plain))

    def __call__(self, schema: Mapping[str, Any] | None, strict: bool) -> str | None:
        """The rule for a JSON value of `schema` (None: any), or None where the value stays free text.

        Raises GrammarError where a strict schema cannot be enforced. What a schema that is not strict asks for beyond
        what can be enforced is left out, and logged once.
        """
        schema = {} if schema is None else schema
        if isinstance(grammar := schema.get(_GRAMMAR), Mapping):
            return self._named({"lark_grammar": str(grammar["definition"])})
        schema = self._with_inner_grammar(schema)
        for attempt in (schema, _without_narrowing(schema), {"type": schema.get("type")}):
            try:
                checked = self._checked(attempt)
                self._verify(checked)
            except GrammarError as error:
                if strict:
                    raise
                _warn(error.message)
                continue
            return self._named({"json_schema": value_grammar(checked)})
        return None

    def finish(self, allowed: Sequence[ToolLike]) -> None:
        """To be called when the grammar of the allowed tools is made. Raises GrammarError for a strict tool whose
        schema says more than the grammar enforces."""
        for index, tool in enumerate(self._tools):
            if tool not in allowed or tool.kind != "function" or not tool.strict or index in self._whole:
                continue
            if tool.parameters is not None:
                refuse_unenforced(tool.parameters, f"tools[{index}].function.parameters")

    def _checked(self, schema: Mapping[str, Any]) -> CheckedSchema:
        """A schema that is a tool's, or that of one of its properties with the tool's definitions beside it, with its
        own path; references are looked up in the tool's schema."""
        limits = self._builder.limits
        plain = {key: value for key, value in schema.items() if key not in DEFINITIONS}
        whole, parts = self._found(self._wholes, schema), self._found(self._parts, plain)
        if whole is not None:
            index, _ = whole
            self._whole.add(index)
            steps: tuple[str, ...] = ()
        elif parts is not None:
            index, name = parts
            steps, schema = ("properties", name), plain
        else:
            return checked_schema(schema, "tools", limits)
        at = f"tools[{index}].function.parameters"
        return checked_schema(schema, at, limits, root=self._tools[index].parameters, steps=steps)

    def _found(self, known: Mapping[str, list[_Origin]], schema: Mapping[str, Any]) -> tuple[int, str] | None:
        """The tool, and the property of it, that a schema is from. Equal ones may refer to different definitions: the
        one that holds the same objects is meant."""
        origins = known.get(as_text(schema), [])
        same = (o for o in origins if all(schema.get(key) is value for key, value in o.schema.items()))
        origin = next(same, origins[0] if origins else None)
        return None if origin is None else (origin.index, origin.name)

    def _with_inner_grammar(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a custom tool as a JSON object: the grammar of its input becomes a pattern."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return schema
        found = {
            key: value[_GRAMMAR]
            for key, value in properties.items()
            if isinstance(value, Mapping) and isinstance(value.get(_GRAMMAR), Mapping)
        }
        if not found:
            return schema
        inner: dict[str, Any] = dict(properties)
        for key, grammar in found.items():
            inner[key] = {"type": "string", "pattern": self._input_pattern(grammar)}
        return {**schema, "properties": inner}

    def _input_pattern(self, grammar: Mapping[str, Any]) -> str:
        """A custom tool's grammar as the pattern of a JSON string."""
        tools = enumerate(self._tools)
        same = (f"tools[{i}].custom.format.grammar" for i, tool in tools if _definition(tool) == grammar["definition"])
        at = next(same, "tools")
        if grammar["syntax"] != "regex":
            only = "this model writes the input as a JSON string, for which only the syntax regex is supported"
            raise GrammarError(f"{at}: {only}", at, "invalid_grammar")
        pattern = f"^(?:{grammar['definition']})$"
        try:
            translate(pattern)
        except ValueError as error:
            raise GrammarError(f"{at} uses what is not supported: {error}", at, "invalid_grammar") from None
        return pattern

    def _named(self, grammar: dict[str, Any]) -> str:
        for known in self.grammars:
            if {key: value for key, value in known.items() if key != "name"} == grammar:
                return f"@{known['name']}"
        self.grammars.append({"name": f"value{len(self.grammars)}", **grammar})
        return f"@{self.grammars[-1]['name']}"

    def _verify(self, checked: CheckedSchema) -> None:
        try:
            self._builder.verify(as_text({"grammars": [{"json_schema": value_grammar(checked)}]}))
        except ValueError as error:
            raise blamed(checked, str(error), self._builder.verify) from None

    def _check_custom(self, format: Any, at: str) -> None:
        syntax, definition = getattr(format, "syntax", None), getattr(format, "definition", "")
        if syntax is None:
            return
        if syntax == "lark":
            check_lark(definition, at)
        else:
            definition = regex_lark(definition)
        try:
            self._builder.verify(as_text({"grammars": [{"lark_grammar": definition}]}))
        except ValueError as error:
            raise GrammarError(f"{at} is not a usable grammar: {error}", at, "invalid_grammar") from None


def _definition(tool: ToolLike) -> str | None:
    definition: str | None = getattr(tool.format, "definition", None)
    return definition


def _without_narrowing(schema: Any) -> Any:
    """The schema without the keywords that only narrow it and cannot always be enforced."""
    if isinstance(schema, Mapping):
        return {
            key: value
            if key in ("const", "enum", "default", "examples")
            else {name: _without_narrowing(inner) for name, inner in value.items()}
            if key in ("properties", "patternProperties", *DEFINITIONS) and isinstance(value, Mapping)
            else _without_narrowing(value)
            for key, value in schema.items()
            if key not in NARROWING
        }
    return [_without_narrowing(item) for item in schema] if isinstance(schema, list) else schema


def _warn(message: str) -> None:
    if message not in _warned and len(_warned) < _MOST_WARNINGS:
        _warned.add(message)
        log.warning("a tool that is not strict is enforced only as far as possible: %s", message)
