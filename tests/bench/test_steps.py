"""The record of what the assembler makes of whole steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dgpp.ops.records import check_rows
from tests.kernels.gpu.available import needs_triton

pytestmark = needs_triton


def test_a_row_has_the_most_of_all_forms_of_a_kernel() -> None:
    from bench.compiled import Compiled
    from bench.steps import record_rows

    one = Compiled(40, 0, 2048, 100, {}, {})
    other = Compiled(96, 8, 1024, 100, {}, {})
    fold, activate, large = ("fold", 1), ("activate", 1), ("fold", 2)
    seen = [(fold, "a", one), (activate, "a", one), (large, "b", other), (fold, "b", one)]
    rows = record_rows(16, seen)
    check_rows("steps", rows)
    first, second = rows
    assert (first["name"], first["models"], first["forms_count"]) == ("activate, 16 rows", "a", 1)
    assert (second["name"], second["models"], second["forms_count"]) == ("fold, 16 rows", "a b", 2)
    assert (second["registers_count"], second["shared_bytes"], second["spill_bytes"]) == (96, 2048, 8)


def test_launches_of_one_form_are_one_whatever_their_grid() -> None:
    from bench.compiled import Launch
    from bench.steps import distinct

    kernel = SimpleNamespace(__name__="fold")
    a, b, c = (
        Launch(kernel, ("*fp32",), grid, constants, 4, 1)
        for grid, constants in (((1,), {"K": 8}), ((2,), {"K": 8}), ((1,), {"K": 9}))
    )
    assert distinct([a, b, c]) == [a, c]


def test_a_model_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.steps import main

    with pytest.raises(SystemExit):
        main(["27b-fp8", "28b"])
    assert "'28b' is none of 27b-fp8" in capsys.readouterr().err
