"""BF12 on real weights: nothing is lost, and the size is the published one of about 12 bits."""

from __future__ import annotations

import pytest

from bench.bf12 import rows_of
from dgpp.checkpoint.reader import Checkpoint
from tests.real.smollm2 import snapshot


@pytest.mark.real
def test_every_matrix_of_smollm2_is_rebuilt_exactly_from_twelve_bits() -> None:
    rows = {row["name"]: row for row in rows_of(Checkpoint.open(snapshot()))}
    whole = rows.pop("all matrices")
    assert whole["matrices_count"] == 30 * 7 + 1
    assert 12 < whole["weight_bits"] < 12.2
    assert sum(row["bytes"] for row in rows.values()) == whole["bytes"]
