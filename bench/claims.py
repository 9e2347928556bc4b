"""`dgpp claims` with GPU kernels on the tiny Qwen models: bench/records/<device>/claims.json.

    python -m bench.claims [--kernels triton] [--effort full] [--seconds 100] [--record]

Models and groups of claims are processes beside each other. A claim that differs, that compared nothing, or that did
not come to an end counts as failed, and the status is 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dgpp.ops.records import this_device, write_record

MODELS = (("qwen35", "tiny-dense"), ("qwen35", "tiny-moe"), ("qwen_flash_next", "tiny"))
GROUPS = (("rows",), ("phase", "chunk"), ("restart",), ("lab",))
"""Claims of one process each: compilation is most of the time, and all take the same steps."""


def examined(directory: Path, claims: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of the record for each claim that came to an end; what went wrong is printed."""
    command = [sys.executable, "-m", "dgpp.cli.main", "claims", str(directory), "--kernels", options.kernels]
    command += ["--row-families", options.row_families, "--effort", options.effort]
    command += [part for claim in claims for part in ("--only", claim)]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        try:
            status = subprocess.run(
                command, stdout=out, stderr=errors, env=environment, timeout=options.seconds
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
        out.seek(0)
        errors.seek(0)
        lines, said = out.read().splitlines(), errors.read()
    rows: list[dict[str, Any]] = []
    for line in lines:
        claim, _, backend, compared, _, verdict = line.split(None, 5)
        row: dict[str, Any] = {"name": f"{directory.name}, {claim}", "model": directory.name, "claim": claim}
        rows.append(row | {"backend": backend, "compared_count": int(compared), "verdict": verdict})
        print(f"{row['name']}: {compared} compared, {verdict}", flush=True)
    if status and len(rows) < len(claims):
        why = "no time left" if status < 0 else f"status {status}: {said[-600:]}"
        print(f"{directory.name}, {' '.join(claims)}: {why}", flush=True)
    return rows


def device_name() -> str:
    """The GPU as its driver calls it, else the processor."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return this_device()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    from dgpp.checkpoint.fixture import write_fixture
    from dgpp.models import FAMILIES

    parser = argparse.ArgumentParser(prog="python -m bench.claims", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kernels", default="triton")
    parser.add_argument("--effort", default="full")
    parser.add_argument("--row-families", default="16,256")
    parser.add_argument("--seconds", type=float, default=100, help="how long one process may take")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/claims.json")
    parser.add_argument("--device", default="h200", help="how the record calls the accelerator")
    parser.add_argument("--records", type=Path, help="the folder of records, instead of bench/records")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(MODELS) * len(GROUPS)) as pool:
        directories = [
            write_fixture(FAMILIES[family], release, Path(folder) / f"{family}-{release}") for family, release in MODELS
        ]
        jobs = [pool.submit(examined, directory, group, options) for group in GROUPS for directory in directories]
        rows = sorted((row for job in jobs for row in job.result()), key=lambda row: row["name"])
    wanted = len(MODELS) * sum(map(len, GROUPS))
    good = sum(row["verdict"].startswith("equal") for row in rows)
    print(f"{good} of {wanted} claims are equal", flush=True)
    if options.record and rows:
        extra = {"kernels": options.kernels, "effort": options.effort, "row families": options.row_families}
        extra |= {"triton": importlib.metadata.version("triton"), "GPU": device_name()}
        print(write_record("claims", rows, device=options.device, extra=extra, root=options.records))
    return 0 if good == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
