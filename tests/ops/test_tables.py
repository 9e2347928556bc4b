"""The Markdown of a benchmark record."""

from __future__ import annotations

import pytest

from dgpp.ops.tables import render, unit_of

RECORD = {
    "benchmark": "decode_cpu",
    "device": "Some CPU, 2 cores",
    "revision": "0123456789abcdef-dirty",
    "versions": {"python": "3.11.2", "jax": "0.10.2"},
    "extra": {"threads": 2},
    "rows": [
        {"name": "read", "seconds": 0.5, "bytes": 9_800_000_000, "gbps": 19.6},
        {"name": "a|b", "streams": 8, "tokens_per_second": 1234.5, "first_token_seconds": 0.00123, "fraction": 0.6857},
        {"name": "small", "bytes": 2_500_000, "count": 0},
        {"name": "tiny", "bytes": 999},
    ],
}


def test_a_table_with_units_in_the_head() -> None:
    lines = render([RECORD]).splitlines()
    assert lines[:4] == [
        "**decode_cpu** on Some CPU, 2 cores",
        "",
        "| name | s | bytes | GB/s | streams | tokens/s | first token (s) | of bandwidth | count |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    assert lines[4] == "| read | 0.5000 | 9.800 G | 19.60 |  |  |  |  |  |"
    assert lines[5] == "| a\\|b |  |  |  | 8 | 1,234 | 0.001230 | 68.6 % |  |"
    assert lines[6] == "| small |  | 2.500 M |  |  |  |  |  | 0 |"
    assert lines[7] == "| tiny |  | 999 |  |  |  |  |  |  |"
    assert lines[9] == "<sub>threads 2; python 3.11.2; jax 0.10.2; revision 0123456789abcdef-dirty</sub>"


def test_records_follow_one_another_and_a_revision_may_be_unknown() -> None:
    text = render([RECORD, {**RECORD, "benchmark": "second", "revision": None}])
    assert text.count("revision") == 1
    assert text.index("**decode_cpu**") < text.index("**second**")


def test_a_long_table_says_what_it_leaves_out() -> None:
    lines = render([RECORD], 2).splitlines()
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == ["| name", "| read", "| a\\|b"]
    assert lines[2].split(" | ")[-1] == "of bandwidth |"
    assert lines[-1].startswith("<sub>the first 2 of 4 rows; threads 2;")
    assert render([RECORD], 4) == render([RECORD])


@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("seconds", "seconds"),
        ("first_token_seconds", "seconds"),
        ("tokens_per_second", "tokens_per_second"),
        ("decode_tokens_per_second", "tokens_per_second"),
        ("milliseconds", None),
        ("name", None),
        ("bytes_moved", None),
    ],
)
def test_unit_of(figure: str, unit: str | None) -> None:
    assert unit_of(figure) == unit
