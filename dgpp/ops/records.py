"""Benchmark records: what was measured, where, and with which versions; and their rendering.

A benchmark calls `write_record`, which writes `bench/records/<device>/<benchmark>.json`. `python -m dgpp.ops.records`
prints all records as Markdown tables; `--readme README.md` puts them between the two marker lines of that file, and
`--check` only tells whether they are there already (exit status 1 if not). There, long tables are cut; their record has
the rest. No figure is typed by hand.

A row is a flat object: text describes it (`name` is required and unique in the record), numbers are its figures, and
the last word of a figure's name is its unit, alone or after a prefix: `seconds`, `first_token_seconds`, `bytes`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dgpp
from dgpp.ops.tables import UNITS, RecordError, insert, render, unit_of

RECORDS = Path("bench/records")  # of the working directory: benchmarks run in the root of a checkout

README_ROWS = 64  # of a table at most
Row = Mapping[str, str | int | float]


def write_record(
    benchmark: str,
    rows: Sequence[Row],
    device: str | None = None,
    extra: Mapping[str, Any] | None = None,
    root: Path | None = None,
) -> Path:
    """Writes the record of one run and returns its path.

    `device` defaults to this machine's processor and the cores the run may use; `extra` holds settings (model,
    threads, sizes); `root` is the folder of all records, by default `bench/records` of the working directory. Raises
    RecordError when a row is malformed: see `check_rows`.
    """
    if not re.fullmatch(r"[a-z0-9_]+", benchmark):
        raise RecordError(f"benchmark name {benchmark!r} must be lower-case letters, digits and _")
    check_rows(benchmark, rows)
    device = device or this_device()
    record = {
        "benchmark": benchmark,
        "device": device,
        "revision": revision(),
        "versions": versions(),
        "extra": dict(extra or {}),
        "rows": [dict(row) for row in rows],
    }
    path = (root or RECORDS) / _slug(device) / f"{benchmark}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def check_rows(benchmark: str, rows: Sequence[Row]) -> None:
    """Raises RecordError unless every row has a unique name, finite figures with units, and figures that agree.

    A speed in tokens per second must have `bytes` (moved in `seconds`), `gbps` and `fraction` (of the bandwidth
    measured in the same run) beside it; where a row has `bytes`, `seconds` and `gbps`, they must agree within 1 %.
    """
    if not rows:
        raise RecordError(f"{benchmark}: no rows; nothing was measured")
    names: set[str] = set()
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str) or not name or name in names:
            raise RecordError(f"{benchmark}: row name {name!r} is missing or not unique")
        names.add(name)
        for figure, value in row.items():
            _check_figure(f"{benchmark}, row {name!r}", figure, value)
        if any(unit_of(figure) == "tokens_per_second" for figure in row):
            absent = [figure for figure in ("seconds", "bytes", "gbps", "fraction") if figure not in row]
            if absent:
                raise RecordError(f"{benchmark}, row {name!r}: a speed needs {', '.join(absent)} beside it")
        if {"seconds", "bytes", "gbps"} <= row.keys():
            expected = float(row["bytes"]) / float(row["seconds"]) / 1e9
            if not math.isclose(float(row["gbps"]), expected, rel_tol=0.01):
                raise RecordError(f"{benchmark}, row {name!r}: gbps is {row['gbps']}, but bytes/seconds {expected:.4g}")


def _check_figure(where: str, figure: str, value: Any) -> None:
    unit = unit_of(figure)
    if isinstance(value, str):
        if unit is not None:
            raise RecordError(f"{where}: {figure} is the text {value!r}; a name that ends in a unit holds a number")
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise RecordError(f"{where}: {figure} is {value!r}, not a finite number >= 0 or a text")
    if unit is None:
        raise RecordError(f"{where}: {figure} names no unit; its last word must be one of {', '.join(UNITS)}")
    if unit == "seconds" and value == 0:
        raise RecordError(f"{where}: {figure} is 0; nothing takes no time")


def this_device() -> str:
    """The processor's name and the number of cores this process may use, e.g. "Xeon Platinum 8481C, 2 cores"."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of everything that shapes a figure."""
    found = {
        "python": platform.python_version(),
        "dgpp": dgpp.__version__,
        "platform": f"{platform.system()} {platform.machine()}".strip(),
    }
    for package in ("jax", "jaxlib", "numpy"):
        found[package] = importlib.metadata.version(package)
    return found


def revision() -> str | None:
    """The checkout's commit, with "-dirty" when files differ from it; None where git does not say. Where the files were
    brought without their history, DGPP_REVISION says it."""
    if given := os.environ.get("DGPP_REVISION"):
        return given
    checkout = Path(dgpp.__file__).resolve().parents[1]
    try:
        commit = _git(checkout, "rev-parse", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _slug(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def read_records(root: Path) -> list[dict[str, Any]]:
    """All records under `root`, by device, then benchmark. Raises RecordError for a file that is no valid record."""
    records = []
    paths = sorted(root.glob("*/*.json"))
    if not paths:
        raise RecordError(f"{root} has no <device>/<benchmark>.json")
    for path in paths:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            check_rows(record["benchmark"], record["rows"])
            records.append(
                {key: record[key] for key in ("benchmark", "device", "revision", "versions", "extra", "rows")}
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path}: not a benchmark record: {error}") from error
    return records


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 1 when `--check` finds stale numbers, 2 for a bad record or file."""
    parser = argparse.ArgumentParser(prog="python -m dgpp.ops.records", description="Renders benchmark records.")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of all records (default: %(default)s)")
    parser.add_argument("--readme", type=Path, help="replace the part of this file between the marker lines")
    parser.add_argument("--check", action="store_true", help="with --readme: write nothing, exit 1 when it is stale")
    options = parser.parse_args(arguments)
    if options.check and options.readme is None:
        parser.error("--check needs --readme")
    try:
        records = read_records(options.records)
        if options.readme is None:
            print(render(records))
            return 0
        before = options.readme.read_text(encoding="utf-8")
        after = insert(before, render(records, README_ROWS))
    except (RecordError, OSError) as error:
        print(f"records: {error}", file=sys.stderr)
        return 2
    if options.check:
        if before != after:
            print(
                f"{options.readme} is stale; run python -m dgpp.ops.records --readme {options.readme}", file=sys.stderr
            )
        return int(before != after)
    options.readme.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
