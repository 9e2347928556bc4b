"""The benchmark of the HTTP side, made small: what its rows hold, and that nothing of a stream is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import serve_load
from bench.serve_load import Case, Stream, added, measured, quantile
from dgpp.ops.records import check_rows

ROOT = Path(__file__).resolve().parents[2]


def test_load_rows_of_streams_beside_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    row = measured(Case("small", streams=4, idle=10), tokens=10)
    check_rows("serve_load", [row])
    assert row["events_count"] == 40
    assert 0 < row["p50_seconds"] <= row["p99_seconds"] <= row["max_seconds"] < 2
    assert row["idle_connection_bytes"] < 200_000


def test_J5_load_slow_schemas_and_a_client_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    row = measured(Case("small", streams=4, never=True, prepared="schemas"), tokens=10)
    check_rows("serve_load", [row])
    assert row["events_count"] == 40
    assert row["dropped_seconds"] > serve_load.WRITE_TIMEOUT
    assert row["prepared_count"] > 0


def test_what_is_added_is_measured_for_each_event() -> None:
    streams = [Stream("a", None, [1.5, 2.25]), Stream("b", None, [1.0])]  # type: ignore[arg-type]
    row = added({"a": [1.0, 2.0], "b": [0.0]}, streams)
    assert row == {"events_count": 3, "p50_seconds": 0.5, "p99_seconds": 1.0, "max_seconds": 1.0}
    with pytest.raises(RuntimeError, match="b got 1 of 2"):
        added({"a": [1.0, 2.0], "b": [0.0, 1.0]}, streams)


def test_quantiles() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.01, 0.5, 0.75, 0.99)] == [1, 2, 3, 4]
