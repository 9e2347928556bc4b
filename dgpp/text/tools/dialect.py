"""Which of the tool-call formats a checkpoint uses, read off its own chat template (case L13)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from dgpp.text.detokenize import Piece
from dgpp.text.events import Call, CallEvent
from dgpp.text.tools import dsml
from dgpp.text.tools.declared import Tool
from dgpp.text.tools.dsml import Dsml
from dgpp.text.tools.glm import Glm
from dgpp.text.tools.hermes_json import HermesJson
from dgpp.text.tools.lark import Value
from dgpp.text.tools.qwen_xml import QwenXml

_SYSTEM = "<｜System｜>"  # DeepSeek-V4.1 has this control token, V4 has not


class CallParser(Protocol):
    """Finds the calls in the text of one answer."""

    @property
    def markers(self) -> frozenset[int]:
        """The ids of control tokens that are syntax; empty when the syntax is plain text."""

    def feed(self, piece: Piece, marker: bool = False) -> list[Piece | CallEvent]:
        """What one more piece makes certain: visible content, with the tokens that it comes from, and the events of
        calls. `marker` says that the piece is one control token of `markers`."""

    def finish(self) -> list[Piece | CallEvent]:
        """What is left when nothing will follow."""


class Dialect(Protocol):
    """A format of tool calls: how they are read, enforced and written."""

    @property
    def name(self) -> str: ...

    @property
    def opener(self) -> str:
        """The text that begins a block: a control token where the tokenizer has it."""

    @property
    def lead(self) -> str:
        """Text that stands before the opener of the first block, and is not in the grammar."""

    def parser(self, tools: Sequence[Tool], *, streams: bool) -> CallParser:
        """A parser of one answer. `streams`: events come while a call is read, which is for answers that a grammar
        keeps well formed; otherwise they come when its block is complete."""

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Value) -> str:
        """Lark text (llguidance's flavour) of from `least` to `most` calls, and of one at least, in whole blocks that
        begin with the opener. Its rules are `start` and names that begin with "call" or "CALL"."""

    def render(self, calls: Sequence[Call]) -> str:
        """The text that the published template writes for `calls`."""


def dialect_of(template_sources: str, control_tokens: Mapping[str, int]) -> Dialect | None:
    """The format that a chat template writes, from the text of its sources; None when it shows none that is known.

    DeepSeek's checkpoints have no template: an empty text and their control token tell the format. `control_tokens`
    are the spellings of the tokenizer's control tokens with their ids.
    """
    source = template_sources
    if dsml.TOKEN in control_tokens and (not source or dsml.TOKEN in source):
        spaced = f"{dsml.TOKEN} calls" in source or (not source and _SYSTEM in control_tokens)
        return Dsml(control_tokens, spaced)
    if "<arg_key>" in source and "<arg_value>" in source:
        return Glm(control_tokens)
    if "<function=" in source and "<parameter=" in source:
        return QwenXml(control_tokens, compact=_is_compact(source))
    if "<tool_call>" in source and "arguments" in source:
        return HermesJson(control_tokens)
    return None


def _is_compact(source: str) -> bool:
    """Whether no line break, real or as an escape, is written between a value and its closing tag."""
    return not re.search(r"(\\n|\n)\s*</parameter>", source)
