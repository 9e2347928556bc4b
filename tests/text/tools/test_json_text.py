"""JSON text in one spacing, and values by their declared type."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpp.text.tools.coerce import typed
from dgpp.text.tools.hold import Ends
from dgpp.text.tools.json_text import normalised

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.booleans(), st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (" ,\n", " :\t")]))
def test_any_spelling_of_a_value_becomes_the_spelling_of_json_dumps(
    value: Any, ascii: bool, indent: int | None, separators: tuple[str, str]
) -> None:
    spelled = json.dumps(value, ensure_ascii=ascii, indent=indent, separators=separators)
    found = normalised(f" {spelled}\n")
    assert found is not None
    assert found[0] == json.dumps(value, ensure_ascii=False)


@given(st.text("{}[]\",:\\ \n01-.eEtrufalsn'/", max_size=12))
def test_what_is_no_json_is_not_taken_for_it(text: str) -> None:
    try:
        json.loads(text, strict=False, parse_constant=lambda name: json.loads(""))
    except ValueError:
        assert normalised(text) is None
    else:
        found = normalised(text)
        assert found is not None
        assert json.loads(found[0]) == json.loads(text, strict=False)


@pytest.mark.parametrize("text", ["1.0", "1e400", "-0", "12345678901234567890.123", "1E+2", "1" + "0" * 5000])
def test_numbers_stay_as_they_are_written(text: str) -> None:
    found = normalised(f"[{text}]")
    assert found is not None
    assert found[0] == f"[{text}]"


@pytest.mark.parametrize(
    "text", ["01", "1.", ".5", "+1", "NaN", "Infinity", "-", "1e", "tru", "True", "nullx", "1 2", ""]
)
def test_words_that_are_no_values(text: str) -> None:
    assert normalised(text) is None


def test_half_characters_stay_escapes() -> None:
    assert normalised('"\\ud83d\\ude00 \\ud83d \\ude00\\u00e9\\n"') == ('"😀 \\ud83d \\ude00é\\n"', "string")


def test_depth_is_bounded() -> None:
    assert normalised("[" * 256 + "]" * 256) is not None
    assert normalised("[" * 100_000) is None


@given(
    st.sets(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3),
    st.text("ab<", max_size=9),
    st.integers(0, 3),
)
def test_L3_exactly_what_may_begin_a_delimiter_is_held(texts: set[str], text: str, at: int) -> None:
    if any(one != other and other.startswith(one) for one in texts for other in texts):
        with pytest.raises(ValueError, match="beginning"):
            Ends(texts)
        return
    ends = Ends(texts)
    rest = text[at:]
    assert ends.held(text, at) == max(k for end in texts for k in range(len(end)) if rest.endswith(end[:k]))
    found = ends.find(text, at)
    places = [text.index(end, at) for end in texts if end in rest]
    assert (found.start() if found else None) == min(places, default=None)


@pytest.mark.parametrize("texts", [[], [""], ["a", "ab"]])
def test_delimiters_that_are_none_are_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="neither empty nor the beginning"):
        Ends(texts)


ROOT: dict[str, Any] = {
    "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}, "e": {"enum": ["a", "1"]}},
    "properties": {"x/y": {"type": "boolean"}},
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"enum": ["a", "1"]}, {"string"}),
        ({"enum": [1, None]}, {"integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"const": 1.5}, {"number"}),
        ({"enum": [[], {}]}, {"array", "object"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"$ref": "#/$defs/n"}, {"type": "array"}]}, {"integer", "array"}),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, {"integer"}),
        ({"$ref": "#/$defs/n"}, {"integer"}),
        ({"$ref": "#/$defs/e"}, {"string"}),
        ({"$ref": "#/properties/x~1y"}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"pattern": "a"}, {"string"}),
        ({}, None),
        (True, None),
        (None, None),
        ({"$ref": "#/$defs/loop"}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": "http://example.com/x"}, None),
        ({"anyOf": [{}, {"type": "string"}]}, None),
        ({"type": "string", "enum": [1]}, None),
        ({"type": "file"}, None),
    ],
)
def test_L1_the_types_that_a_schema_declares(schema: Any, types: set[str] | None) -> None:
    assert typed(schema, ROOT).types == types


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "10", '"10"'),
        ({"type": ["string", "null"]}, '"x"', '"\\"x\\""'),
        ({"type": ["string", "integer"]}, "10", "10"),
        ({"type": ["string", "number"]}, "10", "10"),
        ({"type": ["string", "boolean"]}, "True", "true"),
        ({"type": ["string", "boolean"]}, "None", '"None"'),
        ({"enum": ["1", "2"]}, "1", '"1"'),
        ({"enum": ["1", 2]}, "1", '"1"'),
        ({"enum": ["1", 2]}, "2", "2"),
        ({"const": "true"}, "true", '"true"'),
        ({"type": "integer"}, '"5"', '"5"'),
        ({}, '"x"', '"x"'),
        ({}, "[1,2]", "[1, 2]"),
    ],
)
def test_L1_a_text_as_a_value_of_its_schema(schema: Any, text: str, value: str) -> None:
    assert typed(schema, ROOT).json(text) == value


@pytest.mark.parametrize(
    "text", ["[" * 5000, "{'a': " * 3000, "[" + "-" * 5000 + "1]", "['\\ud800']", "[1e999, None]", "[{1, 2}]"]
)
def test_L17_python_that_cannot_be_read_is_a_string(text: str) -> None:
    assert typed({"type": "array"}, {}).json(text) == json.dumps(text)
