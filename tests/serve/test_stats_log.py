"""The throughput line: its figures, and when it is written."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from dgpp.engine.request import EngineStats
from dgpp.serve.metrics.stats_log import is_busy, throughput_line
from tests.serve.support import eventually
from tests.serve.wire import Serving, post


def test_api_15_figures_are_of_the_time_between_two_snapshots() -> None:
    before = EngineStats(decode_steps=10, decode_rows=20, step_ms=100, prompt_tokens=50, prompt_tokens_computed=50)
    after = EngineStats(
        active=3,
        queued=1,
        prefilling=2,
        pool_blocks_in_use=5,
        pool_blocks_total=8,
        decode_steps=110,
        decode_rows=320,
        step_ms=2100,
        prompts_prefilled=4,
        prompt_tokens=1050,
        prompt_tokens_computed=850,
        prefill_ms=400,
        prefill_request_ms=1000,
    )
    counts = Counter(requests_total=7, requests_shed=1, requests_cancelled=1)
    line = throughput_line(before, after, Counter(requests_total=2), counts, 10.0)
    assert line == (
        "rank 0, 10.0 s; decode 30.00 tok/s (6.67 ms/tok, 20.00 ms/step, 100 steps, 300 tokens, 20 % of the time); "
        "prefill 4 prompts, 1000 tokens (2000.00 tok/s, 0.50 ms/tok, 250.00 ms/prompt, 4 % of the time), 200 cached; "
        "3 live, 2 prefilling, 1 queued; pool 5/8 blocks; requests +5 (shed 1, cancelled 1, failed 0)"
    )


def test_api_15_nothing_is_divided_by_nothing() -> None:
    line = throughput_line(EngineStats(), EngineStats(queued=1), Counter(), Counter(), 1.0)
    assert "decode 0.00 tok/s (- ms/tok, - ms/step, 0 steps" in line


def test_api_15_a_resting_server_is_silent() -> None:
    rests, counts = EngineStats(decode_steps=5), Counter(requests_total=1)
    assert not is_busy(rests, rests, counts, counts)
    assert is_busy(rests, EngineStats(decode_steps=5, queued=1), counts, counts)
    assert is_busy(rests, EngineStats(decode_steps=6), counts, counts)
    assert is_busy(rests, rests, counts, Counter(requests_total=2))


def test_api_15_lines_while_busy_and_one_at_the_end(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dgpp.serve.metrics.stats_log")

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == "dgpp.serve.metrics.stats_log"]

    _, server = serving("x" * 60, step_seconds=0.01, stats_interval=0.2)
    post(server, stream=True).read()
    assert eventually(lambda: len(lines()) >= 3)

    def rests() -> bool:
        count = len(lines())
        return not eventually(lambda: len(lines()) > count, 0.7)

    assert eventually(rests, 20)
    assert "1 live" in lines()[0]
    assert "0 live" in lines()[-1]
    generated = [int(line.split(" steps, ")[1].split(" tokens")[0]) for line in lines()]
    assert sum(generated) == 61


def test_api_15_the_last_line_does_not_wait_for_the_interval(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dgpp.serve.metrics.stats_log")
    _, server = serving("abc", stats_interval=100)
    post(server).read()
    server.stop()
    assert [each.getMessage() for each in caplog.records if "4 tokens" in each.getMessage()]
