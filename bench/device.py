"""Time on an accelerator, from JAX's profiler: what each kernel took, and what lay between them.

XLA runs launches in graphs, in which kernels that do not need each other run side by side, and of which a profile does
not always hold the kernels: whoever times kernels calls `one_by_one` first.
"""

from __future__ import annotations

import collections
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

REPEATS = 9
WARM_SECONDS = 0.25
READ_BYTES = 2 << 30
ONE_BY_ONE = "--xla_gpu_enable_command_buffer="  # the flag of XLA for kernels that are launched apart
GRAPH_LAUNCH = "cuGraphLaunch"  # what the host's events of a profile are called
BUSY_CALLS = 1000  # sums of READ_BYTES, about half a second


@dataclass(frozen=True)
class Event:
    """One kernel or copy on the device, in seconds."""

    name: str
    start: float
    seconds: float


def one_by_one() -> None:
    """From here on, in this process, XLA launches kernels one by one: to be called before a device is used."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_BY_ONE}".strip()


def profiled(call: Callable[[], Any], warm: float) -> list[Any]:
    """The planes of a profile of `call`, after others that ran for `warm` seconds."""
    jax.block_until_ready(call())
    started = time.monotonic()
    while time.monotonic() < started + warm:  # the clock of an idle device needs a while to rise
        jax.block_until_ready(call())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        path = next(Path(folder).rglob("*.xplane.pb"))
        return list(jax.profiler.ProfileData.from_file(str(path)).planes)


def events(call: Callable[[], Any], warm: float = WARM_SECONDS) -> list[Event]:
    """What a profiled `call` ran on the device, in order of time, after others that ran for `warm` seconds."""
    found = {}
    for plane in profiled(call, warm):
        if plane.name.startswith("/device:GPU"):
            for line in plane.lines:
                if line.name.startswith("Stream"):  # other lines repeat the same events by module and by op
                    for event in line.events:
                        found[event.start_ns, event.name] = event.duration_ns
    return sorted(
        (Event(name, start * 1e-9, duration * 1e-9) for (start, name), duration in found.items()),
        key=lambda event: event.start,
    )


def graph_launches(call: Callable[[], Any], warm: float = WARM_SECONDS) -> int:
    """How many graphs of launches the host began in a profiled `call`, after others."""
    hosts = [plane for plane in profiled(call, warm) if plane.name.startswith("/host:")]
    return sum(event.name.startswith(GRAPH_LAUNCH) for plane in hosts for line in plane.lines for event in line.events)


def device_seconds(call: Callable[[], Any], warm: float = WARM_SECONDS) -> dict[str, float]:
    """Median seconds on the device by kernel name, of the launches in a profiled `call` after others."""
    found = collections.defaultdict(list)
    for event in events(call, warm):
        found[event.name].append(event.seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def table(seen: Sequence[Event], most: int = 40) -> str:
    """Kernels by their total time, with counts; then the busy time, the idle time between and the span."""
    total: collections.Counter[str] = collections.Counter()
    count: collections.Counter[str] = collections.Counter()
    for event in seen:
        total[event.name] += event.seconds  # type: ignore[assignment]
        count[event.name] += 1
    span = max(e.start + e.seconds for e in seen) - seen[0].start
    busy = sum(total.values())
    lines = [
        f"{1e6 * seconds:9.1f} us {count[name]:6d} x {1e6 * seconds / count[name]:8.2f}  {name[:90]}"
        for name, seconds in total.most_common(most)
    ]
    lines.append(f"{len(seen)} launches, {len(total)} names; busy {1e3 * busy:.3f} ms of {1e3 * span:.3f} ms")
    return "\n".join(lines)


def launches(seen: Sequence[Event]) -> dict[str, int]:
    """How often each kernel ran."""
    return dict(collections.Counter(event.name for event in seen))


def read_bandwidth() -> dict[str, Any]:
    """A row of a record: the sum of 2 GiB, eight times in a call, the call's whole time."""
    data = jax.random.normal(jax.random.key(0), (8, READ_BYTES // 4), jnp.float32)

    @jax.jit
    def total(data: jax.Array) -> list[jax.Array]:
        return [jnp.sum(part) for part in data]

    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(total(data))
        seconds.append((time.perf_counter() - started) / len(data))
    best = statistics.median(seconds[2:])
    return {"name": "memory, read", "seconds": best, "bytes": READ_BYTES, "gbps": READ_BYTES / best / 1e9}


def busy_clock() -> float:
    """The SM clock of an NVIDIA device in Hz, as its driver gives it while sums like those of `read_bandwidth` run."""
    data = jax.random.normal(jax.random.key(0), (READ_BYTES // 4,), jnp.float32)
    total = jax.jit(jnp.sum)
    jax.block_until_ready(total(data))
    under_way = [total(data) for _ in range(BUSY_CALLS)]
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    jax.block_until_ready(under_way)
    return float(answer.splitlines()[0]) * 1e6
