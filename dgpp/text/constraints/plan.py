"""What one answer has to keep to, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dgpp.text.constraints.response_format import ResponseFormat


class ToolLike(Protocol):
    """What of dgpp.text.tools.declared.Tool a grammar is made from."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Literal["function", "custom"]: ...

    @property
    def parameters(self) -> Mapping[str, Any] | None: ...

    @property
    def strict(self) -> bool: ...

    @property
    def format(self) -> Any: ...


class ChoiceLike(Protocol):
    """What of dgpp.text.tools.declared.ToolChoice matters here."""

    @property
    def mode(self) -> Literal["auto", "none", "required"]: ...

    @property
    def names(self) -> tuple[str, ...] | None: ...

    @property
    def single(self) -> bool: ...


Value = Callable[[Mapping[str, Any] | None, bool], str | None]


class DialectLike(Protocol):
    """What of dgpp.text.tools.dialect.Dialect is used here."""

    @property
    def opener(self) -> str: ...

    @property
    def lead(self) -> str: ...

    def grammar(self, tools: Any, *, least: int, most: int | None, value: Value) -> str: ...


@dataclass(frozen=True)
class Thinking:
    """The reasoning of an answer. Its markers are ids."""

    closer: int
    opener: int | None = None  # None: the answer cannot open it itself
    inside: bool = False  # the rendered prompt ends within it
    budget: int | None = None  # tokens of reasoning until it is ended; needs `hand_over`
    hand_over: tuple[int, ...] = ()  # ids that end it, `closer` among them ("\n</think>\n\n")


@dataclass(frozen=True)
class Tools:
    """Declared tools, how the model spells calls to them, and which it may or must make.

    With choice "none" only the spelling matters: it is forbidden.
    """

    declared: tuple[ToolLike, ...]
    dialect: DialectLike
    choice: ChoiceLike
    turn_end: int | None = None  # the id that is forced after the last forced call; None: any EOS


@dataclass(frozen=True)
class Plan:
    """One answer: reasoning, then content of a form, or tool calls (spec/api.md §7.2, §7.3, §8)."""

    response: ResponseFormat = field(default_factory=ResponseFormat)
    thinking: Thinking | None = None
    tools: Tools | None = None
