"""What a CUDA device has to show, in runs of under ten minutes with a limit for each part.

    python -m bench.device_all [--seconds 570] [--only tests,goldens,claims,sanitizer,decode,kernels,state,counters]
        [--out DIR]

What times nothing runs side by side: the GPU tests, the goldens (made, then compared by other processes), the claims
and compute-sanitizer on small cases. Then whole models and kernels are timed, each alone. All of it takes longer than
one run: with `--only` of what times nothing, that has the whole time. Logs, goldens and records go to
`device_all.tar.gz` in DIR (by default $OUT, else the working directory), written again after every part, so that a run
that is cut short leaves what it had. The last lines are a table.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dgpp.lab.goldens.device import DEVICE_CASES, STEPS

PARALLEL_SECONDS = 240  # of all that runs side by side, where something is timed behind it
DECODE_SECONDS = 220
KERNELS_SECONDS = 170
STATE_SECONDS = 240
COUNTERS_SECONDS = 90
TIMED = ("decode", "kernels", "state", "counters")
GRACE_SECONDS = 5  # of a limit, to end in order
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"  # where it is not on the path
SANITIZED = ("swiglu_parts", "linear-fp8_block128_bf16", "route", "gated_delta")
LINEAR_PROCESSES = 4
RETURNED = ("goldens/sm_*", "bench/records/h200")


@dataclass(frozen=True)
class Job:
    """A command with its own limit; `part` names what it belongs to."""

    part: str
    name: str
    command: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Done:
    """What became of a job: its status (None when it ran out of time), its time, and the line that says most."""

    job: Job
    status: int | None
    seconds: float
    line: str

    def __str__(self) -> str:
        status = "timeout" if self.status is None else "ok" if self.status == 0 else f"rc {self.status}"
        return f"{self.job.part:9} {self.job.name:28} {status:8} {self.seconds:5.0f} s  {self.line}"


def python(*arguments: str) -> tuple[str, ...]:
    """A command of this interpreter."""
    return (sys.executable, "-m", *arguments)


def goldens(cases: Sequence[str], *more: str) -> tuple[str, ...]:
    """The command for these cases."""
    only = [part for case in cases for part in ("--only", case)]
    return python("dgpp.lab.goldens", "--kernels", "triton", *only, *more)


def golden_groups() -> dict[str, list[str]]:
    """Cases by the process that computes them."""
    linear = [name for name in DEVICE_CASES if name.startswith("linear-")]
    experts = [name for name in DEVICE_CASES if name.startswith("experts-")]
    others = [name for name in DEVICE_CASES if name not in (*linear, *experts, *STEPS)]
    groups = {name: [name] for name in STEPS} | {"experts": experts, "others": others}
    return groups | {f"linear {i}": linear[i::LINEAR_PROCESSES] for i in range(LINEAR_PROCESSES)}


def side_by_side(parts: Sequence[str], cores: int, most: float) -> list[tuple[Job, ...]]:
    """Jobs that time nothing, of `most` seconds, the most important and the longest first; those of a tuple run one
    after the other."""
    found: list[tuple[Job, ...]] = []
    if "claims" in parts:
        command = python("bench.claims", "--record", "--seconds", str(most - 5))
        found.append((Job("claims", "tiny Qwen models", command, most),))
    if "tests" in parts:
        workers = ("-n", str(max(1, cores * 3 // 4)), "-p", "no:cacheprovider")
        command = python(
            "pytest", "tests/kernels/gpu", "-m", "gpu", "-v", "-s", "--continue-on-collection-errors", *workers
        )
        found.append((Job("tests", "tests/kernels/gpu", command, most),))
    if "goldens" in parts:
        for name, cases in golden_groups().items():
            made = Job("goldens", f"{name}, made", goldens(cases, "--write"), most)
            found.append((made, Job("goldens", f"{name}, compared", goldens(cases), most)))
    if "sanitizer" in parts:
        tool = shutil.which("compute-sanitizer") or SANITIZER
        command = (tool, "--tool", "memcheck", "--error-exitcode", "9", *goldens(SANITIZED))
        found.append((Job("sanitizer", "memcheck", command, most),))
    return found


def alone(parts: Sequence[str]) -> list[Job]:
    """Jobs that time something."""
    found = []
    if "decode" in parts:
        command = python("bench.decode", "27b-fp8", "27b-nvfp4", "--prefill", "2048,8192", "--profile", "1", "--record")
        command += ("--partner", "--device", "h200")
        found.append(Job("decode", "27B, FP8 and NVFP4", command, DECODE_SECONDS))
    if "kernels" in parts:
        command = python("bench.kernels", "--partners", "--record")
        found.append(Job("kernels", "products at real shapes", command, KERNELS_SECONDS))
    if "state" in parts:
        command = python(
            "bench.kernels", "--state", "--experts", "--formats", "", "--name", "kernels_state", "--record"
        )
        found.append(Job("state", "attention, recurrence, experts", command, STATE_SECONDS))
    if "counters" in parts:
        command = python("bench.counters", "--rows", "16", "--seconds", str(COUNTERS_SECONDS - 10), "--record")
        found.append(Job("counters", "of the products", command, COUNTERS_SECONDS))
    return found


def run(job: Job, logs: Path, stop: float, environment: dict[str, str]) -> Done:
    """Runs a job, with all processes that it starts, to its end or its limit or `stop`."""
    path = logs / re.sub(r"[^a-z0-9_]+", "-", f"{job.part}-{job.name}.log".lower().removesuffix(".log"))
    path = path.with_suffix(".log")
    started = time.monotonic()
    limit = min(job.seconds, stop - started)
    if limit < 2 * GRACE_SECONDS:
        return Done(job, None, 0, "not started: no time left")
    command = job.command
    if job.part in ("kernels", "state"):
        command += ("--seconds", str(int(limit - 20)))
    with path.open("w") as log:
        try:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        except OSError as error:
            return Done(job, 127, 0, str(error))
        status: int | None = None
        try:
            status = process.wait(limit - GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then says what failed so far
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Done(job, status, time.monotonic() - started, summary(job, path.read_text(errors="replace")))


def summary(job: Job, text: str) -> str:
    """The line of a log that says most."""
    lines = [line for line in text.splitlines() if line.strip()]
    if job.part == "tests":
        counts = {word: len(re.findall(rf"\] .*{word} ", text)) for word in ("PASSED", "FAILED", "ERROR")}
        failed = sorted(set(re.findall(r"FAILED (?:tests/\S*::)(\S+(?: \S+\])?)", text)))
        return ", ".join(f"{count} {word.lower()}" for word, count in counts.items()) + f" {' '.join(failed)[:400]}"
    if job.part == "goldens":
        good = sum("values compared" in line and "BEYOND" not in line and " moved," not in line for line in lines)
        bad = [line for line in lines if "BEYOND" in line or " moved," in line or "FAILED" in line]
        return f"{good} good; {'; '.join(line[:150] for line in bad[:6])}"
    if job.part == "claims":
        bad = [line for line in lines if ("compared" in line and ", equal" not in line) or "no time" in line]
        return "; ".join([*(line[:150] for line in bad[:4]), lines[-2][:150] if len(lines) > 1 else ""])
    if job.part == "sanitizer":
        found = [line for line in lines if "ERROR SUMMARY" in line or "not supported" in line]
        return "; ".join(found)[:200] or (lines[-1][:200] if lines else "")
    return lines[-1][:200] if lines else ""


def pack(out: Path, logs: Path) -> None:
    """Writes everything that the run made so far; one file, since few may come back."""
    part = out / "device_all.part"
    try:
        with tarfile.open(part, mode="w:gz") as archive:
            archive.add(logs, "logs")
            for path in sorted(found for pattern in RETURNED for found in Path().glob(pattern)):
                archive.add(path)
        part.replace(out / "device_all.tar.gz")
    except OSError as error:  # a process is just writing one of the files: the next time will do
        print(f"not packed: {error}", flush=True)
        part.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parts = ("tests", "goldens", "claims", "sanitizer", *TIMED)
    parser = argparse.ArgumentParser(prog="python -m bench.device_all", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=570, help="of the whole run")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(parts))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(parts):
        parser.error(f"--only {sorted(unknown)[0]} is unknown; known are: {', '.join(parts)}")
    started, cores = time.monotonic(), min(16, os.cpu_count() or 1)
    stop = started + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp())
    quiet = {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    shared = {**quiet, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    finished: list[Done] = []
    lock = threading.Lock()

    def note(done: Done) -> None:
        with lock:
            finished.append(done)
            print(f"{time.monotonic() - started:4.0f} {done}", flush=True)
            pack(options.out, logs)

    timed = any(part in TIMED for part in options.only)
    together = min(stop, started + PARALLEL_SECONDS) if timed else stop

    def chain(jobs: Sequence[Job]) -> None:
        for job in jobs:
            note(run(job, logs, together, shared))

    chains = side_by_side(options.only, cores, together - started)
    with ThreadPoolExecutor(max(1, len(chains))) as pool:
        for one in [pool.submit(chain, jobs) for jobs in chains]:
            one.result()
    for job in alone(options.only):
        note(run(job, logs, stop, quiet | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}))
    print("\n".join(map(str, finished)))
    pack(options.out, logs)
    shutil.rmtree(logs)
    return 0 if all(done.status == 0 for done in finished) else 1


if __name__ == "__main__":
    sys.exit(main())
