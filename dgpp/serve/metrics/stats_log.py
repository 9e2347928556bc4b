"""The throughput line of the log: what the engine did since the last one, while busy and once more when it rests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from dgpp.engine.request import EngineStats
from dgpp.serve.metrics.telemetry import Telemetry

logger = logging.getLogger(__name__)

Counts = Mapping[str, int]


class StatsLog:
    """A thread that logs a line every `interval` seconds in which something happened. `stop` logs the last one."""

    def __init__(self, stats: Callable[[], EngineStats], telemetry: Telemetry, interval: float) -> None:
        self._stats = stats
        self._telemetry = telemetry
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stats-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        before, counts, then = self._stats(), self._telemetry.counts(), time.monotonic()
        while True:
            ended = self._ended.wait(self._interval)
            after, new_counts, now = self._stats(), self._telemetry.counts(), time.monotonic()
            if is_busy(before, after, counts, new_counts):
                logger.info(throughput_line(before, after, counts, new_counts, now - then))
            before, counts, then = after, new_counts, now
            if ended:
                return


def is_busy(before: EngineStats, after: EngineStats, counts: Counts, new_counts: Counts) -> bool:
    """Whether anything happened between two snapshots, or is under way."""
    live = after.active or after.prefilling or after.queued
    return bool(live) or _work(before) != _work(after) or dict(counts) != dict(new_counts)


def _work(stats: EngineStats) -> tuple[float, ...]:
    return (stats.tokens_generated, stats.prompt_tokens, stats.decode_steps)


def throughput_line(before: EngineStats, after: EngineStats, counts: Counts, new_counts: Counts, seconds: float) -> str:
    """The line for the `seconds` between two snapshots (spec/api.md §15). A rate without a divisor is a dash."""

    def delta(name: str) -> float:
        return float(getattr(after, name) - getattr(before, name))

    def requests(name: str) -> int:
        return new_counts.get(f"requests_{name}", 0) - counts.get(f"requests_{name}", 0)

    rows, steps, step_ms = delta("decode_rows"), delta("decode_steps"), delta("step_ms")
    prompts, read = delta("prompts_prefilled"), delta("prompt_tokens")
    computed, prefill_ms = delta("prompt_tokens_computed"), delta("prefill_ms")
    wall_ms = 1e3 * seconds
    return "; ".join(
        (
            f"rank 0, {seconds:.1f} s",
            f"decode {_per(rows, seconds)} tok/s ({_per(step_ms, rows)} ms/tok, {_per(step_ms, steps)} ms/step, "
            f"{steps:.0f} steps, {rows:.0f} tokens, {_share(step_ms, wall_ms)})",
            f"prefill {prompts:.0f} prompts, {read:.0f} tokens ({_per(1e3 * computed, prefill_ms)} tok/s, "
            f"{_per(prefill_ms, computed)} ms/tok, {_per(delta('prefill_request_ms'), prompts)} ms/prompt, "
            f"{_share(prefill_ms, wall_ms)}), {read - computed:.0f} cached",
            f"{after.active} live, {after.prefilling} prefilling, {after.queued} queued",
            f"pool {after.pool_blocks_in_use}/{after.pool_blocks_total} blocks",
            f"requests +{requests('total')} (shed {requests('shed')}, cancelled {requests('cancelled')}, "
            f"failed {requests('failed')})",
        )
    )


def _per(amount: float, divisor: float) -> str:
    return f"{amount / divisor:.2f}" if divisor > 0 else "-"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} % of the time" if whole > 0 else "-"
