"""Grammars of calls that write each argument between tags, for constrained decoding (spec/api.md §7.3).

Every key at most once and in any order; with more than 60 properties in the declared order. Keys are the declared
ones, and others (which may then be doubled) only where `additionalProperties` is true or a schema. Where required keys
are enforced, a call cannot end without them. A JSON-typed value follows its schema, a string that has to be one of
several is one of them, and any other string is free text that does not hold what would end it, in strict tools of the
declared pattern, format and length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dgpp.text.tools.coerce import resolve, typed
from dgpp.text.tools.declared import GrammarFormat, Tool
from dgpp.text.tools.lark import Value, before_mark, dumps, quoted, regex, sequence, without
from dgpp.text.tools.marks import Marks
from dgpp.text.tools.string_terminal import text_terminal

_BITS = 60  # keys that a rule's parameter can hold


@dataclass(frozen=True)
class Tags:
    """The markup around a call's parts, its control tokens as marks.

    head NAME named (key KEY is_text|is_json VALUE closed)* end
    """

    head: str
    named: str
    key: str
    is_text: str
    is_json: str
    closed: str
    end: str


class TaggedGrammar:
    """The rules of calls; `ends` are the texts at which a parser ends a free value."""

    def __init__(self, tags: Tags, marks: Marks, ends: Iterable[str], value: Value) -> None:
        self._tags = tags
        self._marks = marks
        self._value = value
        # Free text holds no control token, so an end that has one cannot be mistaken for text.
        self._forbidden = {end for end in ends if before_mark(end, marks)[0] == end}
        self._free = without(self._forbidden)
        self.rules: list[str] = [f"CALL_FREE: {self._free}"]
        self._terminals: set[str] = set()

    def calls(self, tools: Sequence[Tool], *, required: bool = False) -> str:
        """The rule `call` of one call to one of `tools`; the other rules are added. Required keys are enforced for
        strict and custom tools, and for all where `required`."""
        names = [
            self._call(at, tool, required=required or tool.strict or tool.kind == "custom")
            for at, tool in enumerate(tools)
        ]
        return f"call: {' | '.join(names)}"

    def _call(self, index: int, tool: Tool, *, required: bool) -> str:
        schema = resolve(tool.schema, tool.schema) or {}
        properties: Mapping[str, Any] = schema.get("properties", {})
        needed = [key for key in dict.fromkeys(schema.get("required", ())) if required and key in properties]
        keys = [*needed, *(key for key in properties if key not in needed)]
        name = f"call_{index}"
        first = "" if needed else sequence(self._tags.end, self._marks)
        others = schema.get("additionalProperties")
        is_open = others is True or isinstance(others, Mapping)
        if keys or is_open:
            more = f"{sequence(self._tags.key, self._marks)} {name}_key{'::0x0' if len(keys) <= _BITS else '_0'}"
            first = f"{first} | {more}" if first else more
        head = sequence(f"{self._tags.head}{tool.name}{self._tags.named}", self._marks)
        self.rules.append(f"{name}: {head} ({first})")
        values = [self._argument(f"{name}_{at}", tool, key, properties[key]) for at, key in enumerate(keys)]
        extra = self._extra(name, tool, keys, others) if is_open else None
        if len(keys) <= _BITS:
            self._any_order(name, values, len(needed), extra)
        else:
            self._declared_order(name, list(properties), dict(zip(keys, values, strict=True)), set(needed), extra)
        return name

    def _any_order(self, name: str, values: list[_Argument], needed: int, extra: _Argument | None) -> None:
        """Rules whose parameter has a bit for each key that was given."""
        cases = [f"{value.key} {value.rule}::set_bit({at}) %if bit_clear({at})" for at, value in enumerate(values)]
        cases += [f"{extra.key} {extra.rule}::_"] if extra else []
        if cases:
            self.rules.append(f"{name}_key::_: {' | '.join(cases)}")
        next_if = "" if extra else f" %if not(is_ones([0:{len(values)}]))"
        last_if = f" %if is_ones([0:{needed}])" if needed else ""
        for value in [*values, *([extra] if extra else [])]:
            more = f"{self._closed(value, self._tags.key)} {name}_key::_{next_if}"
            last = f"{self._closed(value, self._tags.end)}{last_if}"
            self.rules.append(f"{value.rule}::_: {more} | {last}")

    def _declared_order(
        self,
        name: str,
        order: list[str],
        values: Mapping[str, _Argument],
        needed: set[str],
        extra: _Argument | None,
    ) -> None:
        """Rules `_key_N` for what may follow a key's opening when the first N properties are past."""
        for at in range(len(order) + 1):
            cases: list[str] = []
            for later in range(at, len(order)):
                cases.append(f"{values[order[later]].key} {values[order[later]].rule}")
                if order[later] in needed:
                    break
            else:
                cases += [f"{extra.key} {extra.rule}"] if extra else []
            if cases:
                self.rules.append(f"{name}_key_{at}: {' | '.join(cases)}")
            value = values[order[at - 1]] if at else None
            if value is not None:
                more = f"{self._closed(value, self._tags.key)} {name}_key_{at}" if cases else ""
                last = "" if needed & set(order[at:]) else self._closed(value, self._tags.end)
                self.rules.append(f"{value.rule}: {' | '.join(filter(None, (more, last)))}")
        if extra:
            more = f"{self._closed(extra, self._tags.key)} {extra.key} {extra.rule}"
            self.rules.append(f"{extra.rule}: {more} | {self._closed(extra, self._tags.end)}")

    def _extra(self, name: str, tool: Tool, keys: list[str], schema: Any) -> _Argument:
        """An argument that is not declared, of a schema or (True) of none."""
        terminal = f"{name.upper()}_KEY"
        others = f" & ~({' | '.join(map(quoted, keys))})" if keys else ""
        self.rules.append(f"{terminal}: /[A-Za-z0-9_.$-]{{1,64}}/{others}")
        value = self._argument(f"{name}_extra", tool, "", schema)
        return replace(value, key=f"{terminal} {value.key}")

    def _argument(self, rule: str, tool: Tool, key: str, schema: Any) -> _Argument:
        root = tool.schema
        if isinstance(tool.format, GrammarFormat):
            return self._custom(rule, key, tool.format)
        of = typed(schema, root)
        is_text = of.types is not None and "string" in of.types
        tag = self._tags.is_text if of.is_text else self._tags.is_json
        opening = sequence(f"{key}{tag}", self._marks)
        target = resolve(schema, root)
        if of.texts and isinstance(target, Mapping):
            listed = target.get("enum", [target.get("const")])
            texts = [value if isinstance(value, str) else dumps(value) for value in listed]
            if not any(end in text for text in texts for end in self._forbidden):
                return _Argument(opening, rule, None, tuple(dict.fromkeys(texts)))
        if of.is_text and tool.strict and isinstance(target, Mapping) and (wanted := text_terminal(target)):
            return self._terminal(opening, rule, wanted)
        json = None if is_text or of.types is None else self._value(_rooted(schema, root), tool.strict)
        return self._json(opening, rule, json)

    def _custom(self, rule: str, key: str, format: GrammarFormat) -> _Argument:
        opening = sequence(f"{key}{self._tags.is_text}", self._marks)
        if format.syntax == "lark":
            own = {"syntax": format.syntax, "definition": format.definition}
            return self._json(opening, rule, self._value({"type": "string", "x-dgpp-grammar": own}, True))
        return self._terminal(opening, rule, regex(format.definition))

    def _terminal(self, opening: str, rule: str, body: str) -> _Argument:
        self.rules.append(f"{rule.upper()}: {body} & ({self._free})")
        return _Argument(opening, rule, rule.upper())

    def _json(self, opening: str, rule: str, body: str | None) -> _Argument:
        if body is None:
            return _Argument(opening, rule, "CALL_FREE")
        self.rules.append(f"{rule}_value: {body}")
        return _Argument(opening, rule, None, json=f"{rule}_value")

    def _closed(self, value: _Argument, following: str) -> str:
        """The value, the end of it, and `following`. Free text and its end are one terminal: a lexer that reads
        as much as it can would otherwise read past the end."""
        plain, rest = before_mark(self._tags.closed + following, self._marks)
        after = sequence(rest, self._marks)
        if value.json is not None:
            return f"{value.json} {sequence(self._tags.closed + following, self._marks)}"
        if value.terminal is None:
            texts = " | ".join(quoted(text + plain) or '""' for text in value.texts)
            return f"({texts}) {after}".rstrip()
        if not plain:
            return f"{value.terminal} {after}"
        terminal = f"{value.terminal}_{'NEXT' if following == self._tags.key else 'LAST'}"
        if terminal not in self._terminals:
            self._terminals.add(terminal)
            self.rules.append(f"{terminal}: {value.terminal} {quoted(plain)}")
        return f"{terminal} {after}".rstrip()


@dataclass(frozen=True)
class _Argument:
    """One argument: the opening of its value, the rule from there on, and what its value is: a terminal, one of
    several texts, or a JSON rule."""

    key: str
    rule: str
    terminal: str | None
    texts: tuple[str, ...] = ()
    json: str | None = None


def _rooted(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A property's schema by itself, with the definitions that it may refer to."""
    if not isinstance(schema, Mapping):
        return None
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root and key not in schema}
    return {**schema, **shared}
