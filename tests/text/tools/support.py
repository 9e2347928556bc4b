"""The formats of tool calls under test, and answers in them replayed under every split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dgpp.text.events import Answer, Event, Malformed
from dgpp.text.pipeline import Pipeline
from dgpp.text.tools.declared import Tool, parse_tools
from dgpp.text.tools.dialect import Dialect
from dgpp.text.tools.dsml import Dsml
from dgpp.text.tools.glm import Glm
from dgpp.text.tools.hermes_json import HermesJson
from dgpp.text.tools.qwen_xml import QwenXml
from tests.text.splits import Item, Spelled, check_every_split, replays

EOS = 1
CONTROL = {
    text: id
    for id, text in enumerate(
        ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "｜DSML｜"], start=2
    )
}

QWEN, COMPACT, HERMES, GLM = QwenXml(CONTROL), QwenXml(CONTROL, compact=True), HermesJson(CONTROL), Glm(CONTROL)
DSML4, DSML41 = Dsml(CONTROL), Dsml(CONTROL, spaced=True)
MARKED: dict[str, Dialect] = {
    "qwen": QWEN,
    "compact": COMPACT,
    "hermes": HERMES,
    "glm": GLM,
    "dsml4": DSML4,
    "dsml41": DSML41,
}
PLAIN: dict[str, Dialect] = {
    "qwen text": QwenXml(),
    "compact text": QwenXml(compact=True),
    "hermes text": HermesJson(),
    "glm text": Glm(),
    "dsml4 text": Dsml(),
    "dsml41 text": Dsml(spaced=True),
}
DIALECTS = MARKED | PLAIN

LOOKUP = {
    "query": {"type": "string"},
    "max_results": {"type": "number"},
    "exclude": {"type": "array"},
    "fresh": {"type": "boolean"},
    "where": {"type": "object"},
    "cursor": {"type": ["null", "integer"]},
}


def tools(**properties: Any) -> tuple[Tool, ...]:
    """A function `lookup` with these properties, `other` without any, and a custom tool `run`."""
    schema = {"type": "object", "properties": properties}
    return parse_tools(
        [
            {"type": "function", "function": {"name": "lookup", "parameters": schema}},
            {"type": "function", "function": {"name": "other"}},
            {"type": "custom", "custom": {"name": "run"}},
        ]
    )


def items(dialect: Dialect, text: str) -> list[Item]:
    """`text` as a model writes it: its control tokens as ids, the rest as bytes to be cut anywhere."""
    markers = dialect.parser((), streams=False).markers
    texts = [text for text, id in CONTROL.items() if id in markers]
    parts = re.split(f"({'|'.join(map(re.escape, texts))})", text) if texts else [text]
    return [CONTROL[part] if part in texts else part.encode() for part in parts if part]


def vocabulary() -> Spelled:
    return Spelled(special_ids=frozenset({EOS}), markers={id: text.encode() for text, id in CONTROL.items()})


def answer(
    dialect: Dialect,
    text: str,
    declared: Sequence[Tool],
    *,
    streams: bool = False,
    reason: str = "eos",
    samples: int = 8,
) -> Answer:
    """The answer that `text` is, the same however it is split."""
    words = vocabulary()
    make = lambda: Pipeline(words, calls=dialect.parser(declared, streams=streams))  # noqa: E731
    return check_every_split(items(dialect, text), words, make, reason, samples=samples)


def events(
    dialect: Dialect, text: str, declared: Sequence[Tool], *, streams: bool, reason: str = "eos"
) -> list[list[Event]]:
    """The events of each single byte or control token of `text`, then those of the finish."""
    words = vocabulary()
    make = lambda: Pipeline(words, calls=dialect.parser(declared, streams=streams))  # noqa: E731
    letters = [
        bytes([byte]) if isinstance(item, bytes) else item for item in items(dialect, text) for byte in _each(item)
    ]
    [replay] = replays(letters, words, make, reason)
    return [list(step) for step in replay.steps]


def malformed(dialect: Dialect, text: str, declared: Sequence[Tool]) -> int:
    """How many blocks of `text` could not be read."""
    return sum(
        isinstance(event, Malformed) for step in events(dialect, text, declared, streams=False) for event in step
    )


def _each(item: Item) -> bytes | tuple[int]:
    return item if isinstance(item, bytes) else (item,)
