"""The benchmark's arithmetic: bytes, rates, and what partners print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.bandwidth import Bandwidth, measure
from bench.decode_cpu import rows_of
from bench.ours import Traffic
from bench.partners import PartnerError, llama_cpp, parse_batched_bench, transformers
from bench.work import Timing, Work, merge
from dgpp.ops.records import check_rows

ROOT = Path(__file__).resolve().parents[2]
WORK = Work(tokens=tuple(range(100)), prompt=8, steps=4)
TRAFFIC = Traffic(layers=1000, head=100, cache=2)


def test_every_stream_reads_other_text() -> None:
    prompts = WORK.prompts(16)
    assert len({tuple(p) for p in prompts}) == 16
    assert all(len(p) == 8 for p in prompts)


def test_a_step_reads_the_weights_once_and_every_streams_cache() -> None:
    assert TRAFFIC.step(1, 10) == 1100 + 20
    assert TRAFFIC.step(8, 10) == 1100 + 160


def test_a_prompt_reads_the_layers_once_a_pass_and_the_head_once() -> None:
    assert TRAFFIC.prompt(10, 16) == 1000 + 100 + (10 + 10) * 2
    assert TRAFFIC.prompt(40, 16) == 3 * 1000 + 100 + (40 + 16 + 32 + 40) * 2


def test_legs_of_an_engine_become_one_timing() -> None:
    a, b = Timing("a", "decode", 1, (3.0, 1.0)), Timing("b", "decode", 1, (9.0,))
    assert merge([a, b, Timing("a", "decode", 1, (2.0,))]) == [Timing("a", "decode", 1, (3.0, 1.0, 2.0)), b]
    assert (a.best, a.median) == (1.0, 2.0)


def test_rows_are_valid_records_and_count_float32_twice() -> None:
    timings = [
        Timing("dgpp", "decode", 4, (0.5, 0.25)),
        Timing("transformers float32", "decode", 4, (1.0,)),
        Timing("dgpp", "prefill", 32, (2.0,)),
    ]
    rows = rows_of(timings, WORK, TRAFFIC, {"dgpp": 16}, Bandwidth(10_000, 0.1, 0.3))
    check_rows("decode_cpu", rows)
    by_name = {row["name"]: row for row in rows}
    ours, theirs = by_name["decode, 4 streams: dgpp"], by_name["decode, 4 streams: transformers float32"]
    assert ours["tokens_per_second"] == 16
    assert ours["median_tokens_per_second"] == pytest.approx(4 / 0.375)
    assert theirs["bytes"] == 2 * ours["bytes"] == 2 * TRAFFIC.step(4, 10.5)
    assert ours["fraction"] == pytest.approx(ours["bytes"] / 0.25 / (10_000 / 0.1))
    assert by_name["prefill, 32 tokens: dgpp"]["bytes"] == TRAFFIC.prompt(32, 16)


def test_llama_cpps_lines() -> None:
    line = '{"pp": 64, "tg": 32, "pl": 4, "t_pp": 0.5, "t_tg": 1.6}'
    assert parse_batched_bench(f"main: noise\n{line}\n", prefill=False) == [Timing("llama.cpp", "decode", 4, (0.05,))]
    assert parse_batched_bench(line, prefill=True) == [Timing("llama.cpp", "prefill", 64, (0.5,))]
    with pytest.raises(PartnerError, match="no case"):
        parse_batched_bench("error: cannot load\n", prefill=True)


def test_a_partner_that_fails_says_why() -> None:
    with pytest.raises(PartnerError, match="status"):
        llama_cpp(Path(sys.executable), Path("absent.gguf"), WORK)
    with pytest.raises(PartnerError, match="status"):
        transformers(Path(sys.executable), Path("absent"), "float32", WORK)


def test_bandwidth_counts_a_copy_twice() -> None:
    found = measure(threads=2, nbytes=1 << 20, repeats=2)
    assert found.nbytes == 1 << 20
    assert found.copy_gbps == pytest.approx(2 * found.nbytes / found.copy_seconds / 1e9)


def test_the_whole_benchmark_on_the_embedded_model() -> None:
    sizes = ["--threads", "1", "--repeats", "1", "--streams", "1,2", "--steps", "200", "--prefill", "20"]
    # A process of its own, since it binds itself to as many cores as it may use.
    done = subprocess.run([sys.executable, "-m", "bench.decode_cpu", *sizes], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    cases = ["memory, read", "memory, copy", "decode, 1 stream", "decode, 2 streams", "prefill, 20 tokens"]
    assert [line.startswith(case) for line, case in zip(printed, cases, strict=True)] == [True] * 5
    assert all("of the read bandwidth" in line for line in printed)
