"""L13: the format of tool calls is read off the checkpoint's own template."""

from __future__ import annotations

import pytest

from dgpp.text.tools.dialect import dialect_of
from dgpp.text.tools.dsml import Dsml
from dgpp.text.tools.glm import Glm
from dgpp.text.tools.hermes_json import HermesJson
from dgpp.text.tools.qwen_xml import QwenXml
from tests.text import templates

from .support import CONTROL

PLAIN = {text: id for text, id in CONTROL.items() if "DSML" not in text}
COMPACT = "{{ '<function=' ~ call.name ~ '>' }}{{ '<parameter=' ~ key ~ '>' ~ value ~ '</parameter>' }}</function>"


@pytest.mark.parametrize(
    ("source", "control", "dialect"),
    [
        (templates.QWEN38, PLAIN, QwenXml(PLAIN)),
        (templates.QWEN, PLAIN, QwenXml(PLAIN)),
        ("<function=f>\n<parameter=k>\nv\n</parameter>", {}, QwenXml({})),
        (COMPACT, PLAIN, QwenXml(PLAIN, compact=True)),
        ("'<tool_call>' + name + '<arg_key>' + k + '</arg_key><arg_value>' + v", PLAIN, Glm(PLAIN)),
        ("<tool_call>\n{'name': tool_call.name, 'arguments': tool_call.arguments | tojson}", PLAIN, HermesJson(PLAIN)),
        ("", CONTROL, Dsml(CONTROL)),
        ("", CONTROL | {"<｜System｜>": 99}, Dsml(CONTROL | {"<｜System｜>": 99}, spaced=True)),
        ("<｜DSML｜ calls>", CONTROL, Dsml(CONTROL, spaced=True)),
        ("<｜DSML｜tool_calls>", CONTROL, Dsml(CONTROL)),
    ],
)
def test_L13_the_template_tells_the_format(source: str, control: dict[str, int], dialect: object) -> None:
    assert dialect_of(source, control) == dialect


@pytest.mark.parametrize("source", [templates.CHATML, templates.LLAMA3, templates.MISTRAL, ""])
def test_L13_a_template_without_calls_has_no_format(source: str) -> None:
    assert dialect_of(source, PLAIN) is None


def test_the_markers_are_the_control_tokens_of_the_format() -> None:
    counts = {
        QwenXml: {"<tool_call>", "</tool_call>"},
        HermesJson: {"<tool_call>", "</tool_call>"},
        Glm: set(PLAIN),
        Dsml: {"｜DSML｜"},
    }
    for kind, texts in counts.items():
        assert kind(CONTROL).parser((), streams=False).markers == {CONTROL[text] for text in texts}
        assert kind({}).parser((), streams=False).markers == frozenset()
