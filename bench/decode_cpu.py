"""Decode and prefill speed on a CPU, beside other engines on the same weights and threads in the same run.

    python -m bench.decode_cpu MODEL --torch-python TORCH/bin/python --llama-batched-bench PATH --gguf FILE

Engines take turns (dgpp, the partners, dgpp), and the memory's bandwidth is measured before and after. Every figure
comes with the bytes that a step must move at least: each weight once per pass, and the cache of every stream. How to
get the partners, and how to read the figures: bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import partners
from bench.bandwidth import Bandwidth, measure
from bench.work import Timing, Work, merge
from dgpp.ops.records import write_record

if TYPE_CHECKING:
    from bench.ours import Traffic

TEXT = Path(__file__).resolve().parents[1] / "tests" / "data" / "alice.txt"
LLAMA_CPP_PASS = 512  # tokens of a prompt that llama.cpp takes through the weights at once (its -ub)


def rows_of(
    timings: Sequence[Timing], work: Work, traffic: Traffic, passes: dict[str, int], bandwidth: Bandwidth
) -> list[dict[str, Any]]:
    """The record's rows: bandwidth first, then each case with all engines together.

    `passes` are the tokens of a prompt that an engine takes through the weights at once.
    """
    rows: list[dict[str, Any]] = [
        {"name": "memory, read", "seconds": bandwidth.read_seconds, "bytes": bandwidth.nbytes},
        {"name": "memory, copy", "seconds": bandwidth.copy_seconds, "bytes": 2 * bandwidth.nbytes},
    ]
    for timing in sorted(timings, key=lambda t: (t.kind, t.size)):
        wide = 2 if timing.engine.endswith("float32") else 1  # float32 copies of the BF16 weights and cache
        if timing.kind == "decode":
            case, tokens = f"decode, {timing.size} {'stream' if timing.size == 1 else 'streams'}", timing.size
            nbytes = wide * traffic.step(timing.size, work.context())
        else:
            case, tokens = f"prefill, {timing.size} tokens", timing.size
            nbytes = wide * traffic.prompt(timing.size, passes.get(timing.engine, timing.size))
        rows.append(
            {
                "name": f"{case}: {timing.engine}",
                "tokens_per_second": tokens / timing.best,
                "median_tokens_per_second": tokens / timing.median,
                "seconds": timing.best,
                "bytes": nbytes,
            }
        )
    for row in rows:
        row["gbps"] = row["bytes"] / row["seconds"] / 1e9
        row["fraction"] = row["gbps"] / bandwidth.read_gbps
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    options = _options(arguments)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < options.threads:
        print(f"decode_cpu: {options.threads} threads asked for, {len(cores)} cores usable", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"decode_cpu: other work is running (load average {load:.1f}); the figures will be low", file=sys.stderr)
    os.sched_setaffinity(0, cores[: options.threads])  # before JAX counts them; partners inherit it

    import dgpp
    from bench.ours import timings_of, traffic_of
    from dgpp.engine.engine import LocalEngine

    longest = max((*options.prefill, options.prompt + options.steps + 1 + max(options.streams)))
    page = 64
    pool = max(max(options.streams), 1) * (-(-(options.prompt + options.steps + 32) // page) + 1) * page
    model = dgpp.load(
        options.model,
        slots=max(options.streams),
        pool_tokens=max(pool, (longest // page + 2) * page),
        kernels=options.kernels,
    )
    work = Work(
        model.ids(TEXT.read_text(encoding="utf-8")),
        tuple(options.streams),
        options.prompt,
        options.steps,
        tuple(options.prefill),
        options.threads,
        options.repeats,
    )
    engine = LocalEngine(model.core)
    before = measure(options.threads)
    timings = timings_of(engine, work)
    if options.torch_python:
        for dtype in options.dtypes:
            timings += partners.transformers(options.torch_python, model.checkpoint.directory, dtype, work)
    if options.llama_batched_bench:
        timings += partners.llama_cpp(options.llama_batched_bench, options.gguf, work)
    timings += timings_of(engine, work)
    after = measure(options.threads)
    engine.shutdown()

    rows = rows_of(
        merge(timings),
        work,
        traffic_of(model),
        {"dgpp": max(model.core.settings.row_families), "llama.cpp": LLAMA_CPP_PASS},
        max(before, after, key=lambda b: b.read_gbps),
    )
    for row in rows:
        speed = f"{row['tokens_per_second']:9.1f} tokens/s" if "tokens_per_second" in row else " " * 18
        print(
            f"{row['name']:44}{speed}  {row['bytes'] / 1e6:9.1f} MB in {row['seconds'] * 1e3:9.2f} ms = "
            f"{row['gbps']:6.2f} GB/s, {100 * row['fraction']:5.1f} % of the read bandwidth"
        )
    if options.record:
        extra = {
            "model": options.name or model.name,
            "threads": work.threads,
            "kernels": model.core.kernels.name,
            "load average at the start": f"{load:.1f}",
        }
        print(write_record("decode_cpu", rows, extra=extra))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    def sizes(text: str) -> list[int]:
        return [int(size) for size in text.split(",") if size]

    parser = argparse.ArgumentParser(prog="python -m bench.decode_cpu", description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="directory or hub id; without it the embedded model")
    parser.add_argument("--name", help="how the record calls the model")
    parser.add_argument("--kernels", help="kernels by name (default: those that serve)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="of every case in each turn (default: %(default)s)")
    parser.add_argument("--streams", type=sizes, default=[1, 4, 8, 16], metavar="N,N,...")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each decoding stream's prompt")
    parser.add_argument("--steps", type=int, default=64, help="decode steps timed")
    parser.add_argument("--prefill", type=sizes, default=[512, 2048], metavar="N,N,...")
    parser.add_argument("--torch-python", type=Path, help="an interpreter with torch and transformers")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], help="of transformers")
    parser.add_argument("--llama-batched-bench", type=Path, help="that program of llama.cpp")
    parser.add_argument("--gguf", type=Path, help="the same weights as a BF16 GGUF")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/decode_cpu.json")
    options = parser.parse_args(arguments)
    if (options.llama_batched_bench is None) != (options.gguf is None):
        parser.error("--llama-batched-bench and --gguf go together")
    return options


if __name__ == "__main__":
    sys.exit(main())
