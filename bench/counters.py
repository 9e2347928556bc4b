"""What holds each linear kernel back, by the hardware's counters: Nsight Compute over one launch of every format.

    python -m bench.counters [--formats bf16,nvfp4] [--rows 1,16] [--record]

A process of its own launches the products under `ncu`, which repeats each with other counters; so kernels run alone,
with a cold cache, and only shares are to be read. `dram_fraction` and `issue_fraction` are of the peak of the memory
and of the four schedulers, `warps_fraction` of the warps that a multiprocessor holds; `busiest` is the arithmetic unit
with the largest share of its peak; `waits` are the reasons for which a warp did not issue, in warps per issued
instruction, the largest first.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.shapes import FORMATS, GATE
from dgpp.ops.records import write_record

NCU = "/usr/local/cuda/bin/ncu"  # where it is not on the path
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "WarpStateStats", "SchedulerStats", "Occupancy")
DRAM = "dram_throughput.avg.pct_of_peak_sustained_elapsed"  # the end of it: the unit's name differs between releases
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAIT = "smsp__average_warps_issue_stalled_"
PIPE = ("sm__inst_executed_pipe_", "sm__pipe_")
LAYERS = 2
SECONDS = 240.0


def launch(formats: Sequence[str], rows: Sequence[int]) -> None:
    """Every format's product of GATE for each row count, twice, in order."""
    import jax
    import jax.numpy as jnp

    from bench.device import one_by_one
    from bench.random_weights import random_weight
    from dgpp.kernels import select

    one_by_one()
    linear = jax.jit(select("triton").linear)
    for format in formats:
        weight = random_weight(format, LAYERS, GATE.n, GATE.k)
        for count in rows:
            x = jax.random.normal(jax.random.key(2), (count, GATE.k), jnp.float32).astype(jnp.bfloat16)
            for layer in range(LAYERS):
                jax.block_until_ready(linear(x, weight, jnp.int32(layer), jnp.int32(count)))


def counted(formats: Sequence[str], rows: Sequence[int], seconds: float, log: Path) -> list[dict[str, str]]:
    """The counters of the last launch of every format and row count, in order; all of them stay in `log`. Raises
    RuntimeError with what `ncu` said, where it gave other launches than those."""
    if seconds:
        tool = shutil.which("ncu") or NCU
        command = [tool, "--clock-control", "none", "--csv", "--page", "raw", "--log-file", str(log)]
        command += [part for section in SECTIONS for part in ("--section", section)]
        command += ["--kernel-name-base", "function", "--kernel-name", "product"]
        command += [sys.executable, "-m", "bench.counters", "--launch", "--formats", ",".join(formats)]
        command += ["--rows", ",".join(map(str, rows))]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
        if done.returncode:
            raise RuntimeError(f"ncu: status {done.returncode}: {done.stdout[-300:]} {done.stderr[-600:]}")
    lines = log.read_text().splitlines()
    table = list(csv.DictReader(line for line in lines if line.startswith('"')))[1:]  # the first has units
    if len(table) != LAYERS * len(formats) * len(rows):
        raise RuntimeError(f"{len(table)} launches counted: {' '.join(lines[-3:])[-400:]}")
    return table[LAYERS - 1 :: LAYERS]


def row_of(format: str, rows: int, found: Mapping[str, str]) -> dict[str, Any]:
    """A row of the record."""

    def number(name: str) -> float:
        for key, value in found.items():
            if key.endswith(name) and value:
                return float(value.replace(",", ""))
        raise RuntimeError(f"{format}, {rows} rows: ncu gave no {name}")

    peaks = {
        name.split(".")[0].removeprefix("sm__").removeprefix("inst_executed_"): number(name)
        for name in found
        if name.startswith(PIPE) and "pct_of_peak_sustained_active" in name and found[name]
    }
    busiest = max(peaks, key=lambda name: peaks[name])
    waits = {
        name.removeprefix(WAIT).split("_per_issue")[0]: number(name)
        for name in found
        if name.startswith(WAIT) and name.endswith("_per_issue_active.ratio") and "_not_issued" not in name
    }
    most = sorted(waits, key=lambda name: -waits[name])[:4]
    return {
        "name": f"linear, {format}, {GATE.n}x{GATE.k}, {rows} rows",
        "format": format,
        "rows": rows,
        "dram_fraction": number(DRAM) / 100,
        "issue_fraction": number(ISSUE) / 100,
        "warps_fraction": number(WARPS) / 100,
        "busiest": f"{busiest} {peaks[busiest]:.0f} %",
        "waits": ", ".join(f"{name} {waits[name]:.2f}" for name in most),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="python -m bench.counters", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--formats", type=words, default=list(FORMATS))
    parser.add_argument("--rows", type=words, default=["1", "16"])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="0: only read the log")
    parser.add_argument(
        "--log", type=Path, default=Path(tempfile.gettempdir()) / "counters.csv", help="where all counters go"
    )
    parser.add_argument("--record", action="store_true", help="write bench/records/h200/counters.json")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    rows = [int(count) for count in options.rows]
    if options.launch:
        launch(options.formats, rows)
        return 0
    cases = [(format, count) for format in options.formats for count in rows]
    seen = counted(options.formats, rows, options.seconds, options.log)
    found = [row_of(*case, one) for case, one in zip(cases, seen, strict=True)]
    print(*found, sep="\n")
    if options.record:
        print(write_record("counters", found, device="h200"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
