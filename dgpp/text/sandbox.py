"""Where chat templates run: jinja2's immutable sandbox with the helpers that published templates use, and bounds.

The sandbox denies access to Python's internals and changes to values. The bounds are on what a template may compute:
the characters of any string it builds, and the passes of its loops. Both are counted, not timed, so a template that
renders once renders on any machine.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Any

from jinja2 import TemplateRuntimeError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent, do_join, do_replace
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dgpp.text.control_marks import ControlMarks

MAX_CHARACTERS = 1 << 26
MAX_STEPS = 10_000_000
_MAX_WIDTH = 9_999  # of padding; a wider one builds large strings from a short template
_MAX_BITS = 4096  # of an integer
_WIDTHS = re.compile(r"\d{5}|%[^a-zA-Z]*\*|:[^{}]*\{")  # padding in a format that is wide, or decided elsewhere
_DROPPED_FILTERS = ("batch", "center", "random", "slice", "wordwrap")  # unbounded or not repeatable, unused by chats
_SEARCHES = frozenset(
    {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex"}
    | {"rpartition", "rsplit", "split", "startswith", "strip", "lstrip", "rstrip"}
)


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}`: marks the assistant's tokens for training; here only its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment of one chat template. It may render in several threads at once.

    String constants of the template carry control marks (`control_marks`). Where the template looks for one in a text
    (comparisons, tests, `split`, `replace`, ...) its spelling is used, so that it finds what was typed.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, marks: ControlMarks, max_characters: int = MAX_CHARACTERS, max_steps: int = MAX_STEPS) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self._marks = marks
        self._max_characters = max_characters
        self._max_steps = max_steps
        self._count = threading.local()
        self.globals.pop("lipsum")
        self.globals["raise_exception"] = _raise_exception
        for name in _DROPPED_FILTERS:
            self.filters.pop(name)
        self.filters |= {
            "tojson": _to_json,
            "join": self._join,
            "replace": self._replace,
            "format": self._format,
            "indent": self._indent,
            "dgpp_plain": marks.unmark,
            "dgpp_sized": self._sized,
            "dgpp_step": self._step,
        }
        for name in ("eq", "equalto", "==", "ne", "!=", "in"):
            self.tests[name] = self._plain_test(self.tests[name])

    def begin(self) -> None:
        """Starts counting for a rendering in this thread."""
        self._count.steps = 0

    def concat(self, parts: Iterable[str]) -> str:
        """The parts joined; jinja2 builds whole outputs, macros and set blocks with it."""
        taken: list[str] = []
        size = 0
        for part in parts:
            size += len(part)
            self._check_size(size)
            taken.append(part)
        return "".join(taken)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            self._check_bits(_bits(left) * right if isinstance(right, int) else 0)
        elif operator == "*":
            self._check_bits(_bits(left) + _bits(right))
            self._check_size(max(_repeated(left, right), _repeated(right, left)))
        elif operator == "%" and isinstance(left, str):
            self._check_format(left)
        return self._sized(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        method = getattr(obj, "__wrapped__", obj)  # str.format arrives wrapped by the sandbox
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            args = self._check_method(text, method.__name__, args)
        return self._sized(super().call(context, obj, *args, **kwargs))

    def _check_method(self, text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments for a method of a string, once it is clear that the result has a bounded size."""
        if name in _SEARCHES and args:
            args = (self._searched(text, args[0]), *args[1:])
        if name in ("format", "format_map"):
            self._check_format(text)
        if name == "replace" and len(args) > 1:
            self._check_replace(text, args[0], args[1])
        if name == "join" and args and hasattr(args[0], "__len__"):
            self._check_size(len(text) * len(args[0]))
        if name in ("center", "ljust", "rjust", "zfill", "expandtabs", "format") and any(_is_wide(arg) for arg in args):
            raise TemplateRuntimeError(f"the template pads a text to more than {_MAX_WIDTH} characters")
        return args

    def _searched(self, text: str, needle: Any) -> Any:
        """What to look for in `text`: the needle with its marks where the text holds it so, else its spelling."""
        if isinstance(needle, str) and needle in text:
            return needle
        return self._marks.unmark(needle)

    def _plain_test(self, test: Any) -> Any:
        return lambda value, other: test(self._marks.unmark(value), self._marks.unmark(other))

    def _check_size(self, characters: int) -> None:
        if characters > self._max_characters:
            raise TemplateRuntimeError(f"the template builds a text of more than {self._max_characters} characters")

    def _check_bits(self, bits: int) -> None:
        if bits > _MAX_BITS:
            raise TemplateRuntimeError("the template computes with an integer that is too large")

    def _check_format(self, text: str) -> None:
        if _WIDTHS.search(text):
            raise TemplateRuntimeError(f"the template formats with a width that is not below {_MAX_WIDTH + 1}")

    def _check_replace(self, text: Any, old: Any, new: Any) -> None:
        if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
            self._check_size(len(text) + text.count(old) * len(new))

    def _sized(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple):
            self._check_size(len(value))
        return value

    @pass_context
    def _step(self, context: Context, value: None) -> None:
        self._count.steps += 1
        if self._count.steps > self._max_steps:
            raise TemplateRuntimeError(f"the template takes more than {self._max_steps} loop passes")

    @pass_context
    def _join(self, context: Context, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        items = list(value)
        self._check_size(len(d) * len(items))
        return str(self._sized(do_join(context.eval_ctx, items, d, attribute)))

    @pass_context
    def _replace(self, context: Context, s: Any, old: Any, new: Any, count: int | None = None) -> str:
        text = str(s)
        old = self._searched(text, old)
        self._check_replace(text, old, new)
        return do_replace(context.eval_ctx, text, old, new, count)

    def _format(self, value: str, *args: Any, **kwargs: Any) -> str:
        self._check_format(str(value))
        return str(self._sized(str(value) % (kwargs or args)))

    def _indent(self, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        if _is_wide(width if isinstance(width, int) else len(width)):
            raise TemplateRuntimeError(f"the template indents by more than {_MAX_WIDTH} characters")
        return str(self._sized(do_indent(s, width, first, blank)))


def _raise_exception(message: Any) -> None:
    raise TemplateRuntimeError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as published templates expect it: readable Unicode and no HTML escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if ensure_ascii:  # but not the marks
        text = re.sub("[^\x00-\x7f\ud800-\udfff]", lambda found: json.dumps(found.group())[1:-1], text)
    return text


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _repeated(value: Any, times: Any) -> int:
    return len(value) * times if isinstance(value, str | list | tuple) and isinstance(times, int) else 0


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and value > _MAX_WIDTH
