"""Which efforts a template knows, and what the words of requests become (spec/api.md §5.4)."""

from __future__ import annotations

import pytest
from jinja2 import Environment

from dgpp.text.efforts import POSITIVE, effort_values, efforts_known
from tests.text.templates import QWEN38


def known(source: str) -> frozenset[str]:
    return efforts_known(Environment().parse(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (QWEN38, {"xhigh", "medium", "low"}),
        ("{% if reasoning_effort == 'low' %}a{% elif reasoning_effort == 'high' %}b{% endif %}", {"low", "high"}),
        ("{% set e = reasoning_effort or 'high' %}{% set f = e %}{{ 'x' if f in ['low', 'max'] }}", {"low", "max"}),
        ("{{ {'low': 1, 'medium': 2, 'other': 3}[reasoning_effort] }}", {"low", "medium"}),
        ("{{ reasoning_effort }}{% if other == 'low' %}{% endif %}", set()),
        ("{{ messages }}", set()),
    ],
)
def test_api_5_4_the_words_that_a_template_compares_with(source: str, words: set[str]) -> None:
    assert known(source) == words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), POSITIVE),
        (("low", "medium", "xhigh"), ("low", "low", "medium", "xhigh", "xhigh", "xhigh")),
        (("low", "medium", "high", "xhigh"), ("low", "low", "medium", "high", "xhigh", "xhigh")),
        (("low", "high"), ("low", "low", "high", "high", "max", "max")),
        (("low", "medium", "high"), ("low", "low", "medium", "high", "high", "high")),
        (("high",), ("high", "high", "high", "high", "max", "max")),
        (("max",), ("max",) * 6),
    ],
)
def test_api_5_4_each_word_becomes_the_next_known_one(words: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert tuple(effort_values(frozenset(words)).values()) == expected
