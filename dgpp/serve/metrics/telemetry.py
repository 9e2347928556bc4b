"""What the HTTP side counts and times: one Telemetry per application, one ChoiceTimes per generated choice.

Every accepted request ends exactly once, as finished, cancelled or failed, so that
`requests_total = requests_shed + requests_finished + requests_cancelled + requests_failed + open` holds at any time.
Histograms count choices; a choice without a token has no time to first token.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

LATENCY_BUCKETS = (*(m * 10.0**e for e in range(-3, 3) for m in (1, 2.5, 5)), 640)
TOKEN_BUCKETS = (*(m * 10.0**e for e in range(6) for m in (1, 2.5, 5)), 10**6)

_HISTOGRAMS: tuple[tuple[str, str, Sequence[float]], ...] = (
    ("e2e_request_latency_seconds", "From the request's arrival to its end.", LATENCY_BUCKETS),
    ("request_queue_time_seconds", "From the request's arrival to its slot.", LATENCY_BUCKETS),
    ("request_prefill_time_seconds", "From its slot to the first token.", LATENCY_BUCKETS),
    ("request_decode_time_seconds", "From the first token to the last.", LATENCY_BUCKETS),
    ("request_time_per_output_token_seconds", "Mean time between the tokens of one choice.", LATENCY_BUCKETS),
    ("inter_token_latency_seconds", "Time between two tokens.", LATENCY_BUCKETS),
    ("request_prompt_tokens", "Prompt tokens.", TOKEN_BUCKETS),
    ("request_generation_tokens", "Generated tokens.", TOKEN_BUCKETS),
)


class Telemetry:
    """Counters by name and Prometheus histograms. Safe to use from any thread."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self.model_name = model_name
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._histograms = {
            name: Histogram(f"dgpp_{name}", text, ["model_name"], registry=self.registry, buckets=buckets).labels(
                model_name
            )
            for name, text, buckets in _HISTOGRAMS
        }
        first_token = Histogram(
            "dgpp_time_to_first_token_seconds",
            "From the request's arrival to its first token.",
            ["model_name", "prefix_cache"],
            registry=self.registry,
            buckets=LATENCY_BUCKETS,
        )
        self._first_token = {kind: first_token.labels(model_name, kind) for kind in ("hit", "miss")}

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to a counter."""
        with self._lock:
            self._counts[name] += amount

    def counts(self) -> Counter[str]:
        """The counters now; an unknown name is 0."""
        with self._lock:
            return Counter(self._counts)

    def open_requests(self) -> int:
        """Accepted requests that have not ended."""
        with self._lock:
            ended = sum(self._counts[f"requests_{how}"] for how in ("shed", "finished", "cancelled", "failed"))
            return self._counts["requests_total"] - ended

    def finish_reasons(self) -> dict[str, int]:
        """Ended choices by reason."""
        with self._lock:
            return dict(self._reasons)

    def observe(self, name: str, value: float) -> None:
        """Adds to a histogram."""
        self._histograms[name].observe(value)

    def first_token(self, seconds: float) -> None:
        """Adds a time to first token; without a prefix cache every prompt misses it."""
        self._first_token["miss"].observe(seconds)

    def ended(self, reason: str) -> None:
        """Counts a choice that ended."""
        with self._lock:
            self._reasons[reason] += 1


class ChoiceTimes:
    """The clock of one choice, started when its request arrived."""

    def __init__(self, telemetry: Telemetry, arrived: float, prompt_tokens: int) -> None:
        self._telemetry = telemetry
        self._arrived = arrived
        self._prompt_tokens = prompt_tokens
        self._first = self._last = 0.0
        self._tokens = 0

    def token(self, admitted: float | None = None) -> None:
        """A token has come for the choice that got its slot at `admitted` (`time.monotonic()`)."""
        now = time.monotonic()
        if self._tokens:
            self._telemetry.observe("inter_token_latency_seconds", now - self._last)
        else:
            self._first = now
            self._telemetry.first_token(now - self._arrived)
            if admitted is not None:
                self._telemetry.observe("request_queue_time_seconds", admitted - self._arrived)
                self._telemetry.observe("request_prefill_time_seconds", now - admitted)
        self._last = now
        self._tokens += 1

    def end(self, reason: str) -> None:
        """The choice ended."""
        telemetry = self._telemetry
        telemetry.ended(reason)
        telemetry.count("tokens_out", self._tokens)
        telemetry.observe("e2e_request_latency_seconds", time.monotonic() - self._arrived)
        telemetry.observe("request_prompt_tokens", self._prompt_tokens)
        telemetry.observe("request_generation_tokens", self._tokens)
        if self._tokens:
            telemetry.observe("request_decode_time_seconds", self._last - self._first)
        if self._tokens > 1:
            per_token = (self._last - self._first) / (self._tokens - 1)
            telemetry.observe("request_time_per_output_token_seconds", per_token)
