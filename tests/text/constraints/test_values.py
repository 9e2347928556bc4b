"""Numbers, formats and patterns against exact arithmetic and independent readers (spec/api.md §8.1)."""

from __future__ import annotations

import calendar
import itertools
import json
import random
import re
import warnings
from decimal import Decimal
from typing import Any

import pytest

from dgpp.text.constraints import compile
from dgpp.text.constraints.formats import STRING_FORMATS
from dgpp.text.constraints.patterns import translate
from tests.text.constraints.support import EOS, FORMATS, byte_vocabulary, check, json_plan, samples

WORDS = byte_vocabulary()
END = WORDS.tokenizer.control_tokens[EOS]


class Language:
    """Which texts the masks of a schema let through."""

    def __init__(self, schema: Any) -> None:
        make = compile(json_plan(schema), WORDS)
        assert make is not None
        self._start = make()

    def __contains__(self, text: str) -> bool:
        constraint = self._start.copy()
        for byte in text.encode():
            if not constraint.allowed()[byte]:  # type: ignore[index]
                return False
            constraint.accept(byte)
        return bool(constraint.allowed()[END])  # type: ignore[index]


BOUNDS = [
    0,
    1,
    -1,
    0.5,
    -0.5,
    1.5,
    -1.5,
    10,
    9.99,
    -10,
    0.01,
    -0.01,
    0.25,
    100,
    99.9,
    3,
    -2.75,
    1e-7,
    123456.789,
]
LOW, HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
HOLDS = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}


def intervals() -> list[dict[str, Any]]:
    """One bound, and two that hold numbers between them."""
    single = [{key: bound} for bound in BOUNDS for key in (*LOW, *HIGH)]
    pairs = itertools.product(BOUNDS, BOUNDS, LOW, HIGH)
    return single + [{low: a, high: b} for a, b, low, high in pairs if a < b]


def probes(bounds: dict[str, Any], source: random.Random) -> set[Decimal]:
    """Numbers at and around the bounds, and some others."""
    steps = map(Decimal, ("0", "0.0001", "-0.0001", "0.1", "-0.1", "1", "-1"))
    near = {Decimal(repr(bound)) + step for bound, step in itertools.product(bounds.values(), steps)}
    return near | {Decimal(source.randint(-20_000, 20_000)).scaleb(-source.randint(0, 3)) for _ in range(4)}


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_api_8_1_bounds_against_exact_decimals(kind: str) -> None:
    source = random.Random(1)
    cases = intervals()
    checked = 0
    for bounds in source.sample(cases, 150):
        if kind == "integer" and not any(_fits(Decimal(n), bounds) for n in _integers_near(bounds)):
            continue
        language = Language({"type": kind} | bounds)
        for value in probes(bounds, source):
            whole = value == value.to_integral_value()
            text = str(int(value)) if whole else format(value.normalize(), "f")
            if kind == "integer" and not whole:
                assert text not in language
                continue
            assert (text in language) == _fits(value, bounds), (text, bounds)
            if kind == "number" and whole:
                assert f"{text}.0" not in language or _fits(value, bounds), (text, bounds)
            checked += 1
    assert checked > 300


def _fits(value: Decimal, bounds: dict[str, Any]) -> bool:
    return all(HOLDS[key](value, Decimal(repr(bound))) for key, bound in bounds.items())


def _integers_near(bounds: dict[str, Any]) -> list[int]:
    return [int(bound) + step for bound in bounds.values() for step in (-1, 0, 1)]


@pytest.mark.parametrize("factor", [1, 2, 3, 7, 9999, 0.5, 0.25, 0.1, 2.5, 0.01, 1.25])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_api_8_1_multiples_against_exact_decimals(kind: str, factor: float) -> None:
    source = random.Random(2)
    language = Language({"type": kind, "multipleOf": factor})
    exact = Decimal(repr(factor))
    for _ in range(60):
        times = source.randint(-3000, 3000)
        for value in (exact * times, exact * times + 1, exact * times + Decimal("0.01")):
            if kind == "integer" and value != int(value):
                continue
            text = str(int(value)) if kind == "integer" else format(value, "f")  # with the digits of the factor
            assert (text in language) == (value % exact == 0), (text, factor)


def test_api_8_1_integers_beyond_doubles_are_narrowed_inwards() -> None:
    language = Language({"type": "integer", "format": "int64"})
    for text in ("9223372036854774784", "-9223372036854774784", "0", "-1"):  # as far as doubles below 2**63 go
        assert text in language
    for text in ("9223372036854775808", "-9223372036854775809", "10000000000000000000"):
        assert text not in language
    assert "2147483648" not in Language({"type": "integer", "format": "int32"})
    assert "2147483647" in Language({"type": "integer", "format": "int32"})


GOOD = {
    "date": ["2024-02-29", "2000-02-29", "0004-02-29", "1999-12-31", "0001-01-01"],
    "time": ["00:00:00Z", "23:59:59.123456+14:00", "12:30:00-23:59"],
    "date-time": ["2024-02-29T23:59:59Z", "1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00"],
    "duration": ["P1Y2M3DT4H5M6S", "PT36H", "P4W", "P1M", "PT1M"],
    "email": ["a@b.example", "first.last+tag@mail.example.com"],
    "hostname": ["localhost", "a-b.example.com", "x" * 63 + ".example", "1password", "a.b.c.d.e.f.example"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.1.10"],
    "ipv6": ["::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"],
    "uri": ["https://user@example.com:8080/a/b%20c?q=1#top", "mailto:a@b.example", "urn:isbn:123", "http://[::1]/"],
}
BAD = {
    "date": [
        "2023-02-29",
        "1900-02-29",
        "2100-02-29",
        "2024-02-30",
        "2024-04-31",
        "2024-13-01",
        "2024-00-10",
        "0000-01-01",
        "24-1-1",
    ],
    "time": ["24:00:00Z", "23:60:00Z", "23:59:60Z", "12:00:00", "12:00Z", "12:00:00+24:00"],
    "date-time": ["2023-02-29T00:00:00Z", "2016-12-31T23:59:60+01:00", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"],
    "duration": ["P", "PT", "P1YT", "P1Y2D", "PT1H2S", "P1W2D", "1D", "P-1D"],
    "email": ["a", "@b.example", "a@", "a..b@c.example", ".a@b.example", "a@-b.example", "a b@c.example"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "x" * 64, "a.", "é.example"],
    "ipv4": ["256.1.1.1", "1.1.1", "01.1.1.1", "1.1.1.1.1"],
    "ipv6": [":", ":::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "12345::", "::g", "1:2:3:4:5:6:7:8::"],
    "uuid": [
        "123e4567e89b12d3a456426614174000",
        "123e4567-e89b-12d3-a456-42661417400",
        "g23e4567-e89b-12d3-a456-426614174000",
    ],
    "uri": ["/a/b", "example.com", "http://a b", "http://a/%zz", "://a", "http://[::1"],
}


@pytest.mark.parametrize("name", STRING_FORMATS)
def test_api_8_1_formats(name: str) -> None:
    language = Language({"type": "string", "format": name})
    for text in GOOD[name]:
        assert FORMATS.conforms(text, name), text
        assert json.dumps(text) in language, text
    for text in BAD[name]:
        assert json.dumps(text, ensure_ascii=False) not in language, text
    for text in samples({"type": "string", "format": name}, 60):
        assert FORMATS.conforms(json.loads(text), name), text


def test_api_8_1_leap_years_of_the_calendar() -> None:
    language = Language({"type": "string", "format": "date"})
    years = {*range(1, 30), *range(100, 10_000, 100), *random.Random(3).sample(range(1, 10_000), 150)}
    for year in years:
        assert (f'"{year:04}-02-29"' in language) == calendar.isleap(year), year


PATTERNS = [
    "^a",
    "b$",
    "a|b",
    "^(?:a|b)$",
    "^a|b$",
    "^[A-Z]{2,4}$",
    r"\d",
    r"^\d{3}-\d{4}$",
    r"^\S+$",
    r"^\s*$",
    r"^\D$",
    r"^\W+$",
    r"^[^\d]$",
    r"^[^\w]$",
    r"^[\w.-]+$",
    "^a.c$",
    "^$",
    "",
    r"^\x41\u0042$",
    r"^[a\-z]$",
    r"^[\]\[]$",
    "^[a&&b]$",
    "^[a~~-]+$",
    r"^\/\.\*$",
    "^(a*)*b?$",
    "^a+?b??$",
    "^(?<year>[0-9]{2})$",
    r"^\t$",
    r"^[\b]$",
    "^x{0}y$",
    "^-?[0-9]+$",
    "^[^a-z]+$",
    "^é+$",
    "}]",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_api_8_1_patterns_match_what_every_dialect_matches(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    with warnings.catch_warnings(action="ignore"):  # of sets that Python might read otherwise one day
        python = re.compile(pattern.replace("(?<", "(?P<"))
    language = Language(schema)
    source = random.Random(pattern)
    alphabet = 'aabbcABZ019 -_.*/]}[é²٣\u00a0\x85\ufeff\n\t\b&~"\\'
    for _ in range(150):
        text = "".join(source.choice(alphabet) for _ in range(source.randint(0, 5)))
        found = python.search(text)
        if json.dumps(text, ensure_ascii=False) in language:
            assert found, text
        elif found and text.isascii():
            # "$" is also before a last line break in Python, and its \s has the separators of ASCII.
            assert text.endswith("\n") or "\x1c" <= min(text, default=" ") <= "\x1f", text


@pytest.mark.parametrize("pattern", PATTERNS[:-1])  # the last takes chance too long to find
def test_api_8_1_answers_match_their_pattern(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern.replace("(?<", "(?P<")}
    for text in samples(schema, 10):
        check(schema, text)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?!a)", "lookahead"),
        ("(?<=a)b", "lookahead"),
        (r"\1", "back-references"),
        (r"\k<a>", "back-references"),
        (r"\Ba", "word boundaries"),
        ("(?i:a)", "a group that begins with"),
        ("[]", "an empty character class"),
        ("[z-a]", "no order"),
        ("[a", "ends within"),
        ("a\\", "ends within"),
        ("a**", "a quantifier behind"),
        ("a{,3}", "a brace"),
        (r"\q", r"the escape \\q"),
        (r"\ud800", "names no character"),
        (r"\u{110000}", "names no character"),
        (r"\x4", "the escape"),
        (r"\p", "the escape"),
    ],
)
def test_api_8_1_patterns_that_are_refused_say_why(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        translate(pattern)
