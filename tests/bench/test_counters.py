"""What is read from Nsight Compute's table, and the record of a profile."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.counters import DRAM, ISSUE, LAYERS, PIPE, WAIT, WARPS, counted, row_of
from bench.decode import profile_rows
from bench.device import Event
from dgpp.ops.records import check_rows

NAMES = (f"gpu__{DRAM}", ISSUE, WARPS, f"{PIPE[0]}alu.avg.pct_of_peak_sustained_active",
         f"{PIPE[0]}xu.avg.pct_of_peak_sustained_active", f"{WAIT}barrier_per_issue_active.ratio",
         f"{WAIT}long_scoreboard_per_issue_active.ratio")  # fmt: skip


def log_of(path: Path, *launches: tuple[str, ...]) -> Path:
    """A table as `ncu` writes it: other lines, the names, the units, and a line a launch."""
    with path.open("w") as file:
        file.write("==PROF== Connected to process 1\n")
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerows([("ID", *NAMES), ("", *["%"] * len(NAMES)), *((str(i), *one) for i, one in enumerate(launches))])
    return path


def test_the_last_launch_of_a_format_becomes_a_row(tmp_path: Path) -> None:
    first = ("1", "2", "3", "4", "5", "6", "7")
    log = log_of(tmp_path / "log.csv", first, ("51.5", "20", "30", "12", "40.2", "0.5", "1,001.25"))
    (found,) = counted(["nvfp4"], [16], 0, log)
    row = row_of("nvfp4", 16, found)
    check_rows("counters", [row])
    figures = (row["dram_fraction"], row["issue_fraction"], row["warps_fraction"])
    assert figures == (0.515, 0.2, 0.3)
    assert row["busiest"] == "pipe_xu 40 %"
    assert row["waits"] == "long_scoreboard 1001.25, barrier 0.50"


def test_a_table_of_other_launches_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log.csv", *[("1",) * len(NAMES)] * LAYERS)
    with pytest.raises(RuntimeError, match="2 launches counted"):
        counted(["nvfp4"], [1, 16], 0, log)


def test_a_counter_that_lacks_is_named() -> None:
    found = {f"{PIPE[0]}alu.avg.pct_of_peak_sustained_active": "1"}
    with pytest.raises(RuntimeError, match="gave no dram_throughput"):
        row_of("nvfp4", 16, found)


def test_a_profile_names_our_kernels_and_takes_those_of_xla_together() -> None:
    seen = [Event("product", 0.0, 2e-3), Event("loop_add_fusion", 0.0, 1e-4), Event("MemcpyD2H", 0.0, 2e-4)]
    rows = profile_rows("m", [*seen, Event("product", 0.0, 2e-3)], 8e9, 9e9, 4000.0)
    check_rows("step_profile", rows)
    product, xla, everything = rows
    assert (product["name"], product["launches_count"], product["bytes"]) == ("m, product", 2, 8e9)
    assert product["fraction"] == pytest.approx(0.5)
    mixture = {row["name"]: row for row in profile_rows("m", [*seen, Event("grouped", 0.0, 1e-3)], 8e9, 9e9, 4000.0)}
    assert [name for name, row in mixture.items() if "bytes" in row] == ["m, all"]  # others read weights too
    assert (xla["name"], xla["launches_count"]) == ("m, XLA's own kernels and copies", 2)
    assert (everything["launches_count"], everything["seconds"]) == (4, pytest.approx(4.3e-3))
