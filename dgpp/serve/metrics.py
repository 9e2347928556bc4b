"""GET /metrics (JSON) and /metrics/prometheus: the engine's counters and those of the HTTP side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dgpp import __version__
from dgpp.serve.replies import json_reply
from dgpp.serve.service import Service

FINISH_REASONS = ("none", "eos", "length", "cancelled", "pool_exhausted", "stop")


def blueprint(service: Service) -> Blueprint:
    """The routes."""
    routes = Blueprint("metrics", __name__)
    service.telemetry.registry.register(_Snapshot(service))

    @routes.get("/metrics")
    @routes.get("/v1/metrics")
    def as_json() -> Response:
        return json_reply(snapshot(service))

    @routes.get("/metrics/prometheus")
    def as_text() -> Response:
        return Response(generate_latest(service.telemetry.registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    return routes


def snapshot(service: Service) -> dict[str, Any]:
    """The JSON metrics."""
    stats, counts = service.engine.stats(), service.telemetry.counts()
    return {
        "scheduler": {
            "active": stats.active,
            "queued": stats.queued,
            "prefilling": stats.prefilling,
            "terminal": sum(stats.finished.values()) + stats.requests_failed,
            "pool_blocks_total": stats.pool_blocks_total,
            "pool_blocks_in_use": stats.pool_blocks_in_use,
            "tokens_generated": stats.tokens_generated,
            "prompts_prefilled": stats.prompts_prefilled,
            "prompt_tokens": stats.prompt_tokens,
            "prompt_tokens_computed": stats.prompt_tokens_computed,
            "decode_steps": stats.decode_steps,
            "decode_rows": stats.decode_rows,
            "prefill_ms": stats.prefill_ms,
            "step_ms": stats.step_ms,
            "compiles_after_ready": stats.compiles_after_ready,
        },
        "service": {
            "requests_total": counts["requests_total"],
            "requests_shed": counts["requests_shed"],
            "requests_finished": counts["requests_finished"],
            "requests_cancelled": counts["requests_cancelled"],
            "requests_failed": counts["requests_failed"],
            "requests_open": service.telemetry.open_requests(),
            "engine_failed": stats.failed is not None,
            "tokens_out": counts["tokens_out"],
            "rejects_bad": counts["rejects_bad"],
        },
    }


class _Snapshot(Collector):
    """Metric families made of a snapshot at scrape time."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask the engine."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families."""
        service = self._service
        stats, counts, info = service.engine.stats(), service.telemetry.counts(), service.engine.info
        name = service.telemetry.model_name
        build = GaugeMetricFamily("dgpp_build_info", "The version that runs.", labels=["model_name", "version"])
        build.add_metric([name, __version__], 1)
        yield build
        in_use, blocks = stats.pool_blocks_in_use, stats.pool_blocks_total
        for gauge, text, value in (
            ("engine_failed", "1 after the engine stopped with an error.", stats.failed is not None),
            ("max_concurrent_requests", "Slots.", info.max_concurrency),
            ("queue_limit", "Most requests that may wait.", info.queue_limit),
            ("kv_pool_tokens", "Tokens that the K/V pool holds.", info.pool_tokens),
            ("num_requests_running", "Choices in a slot.", stats.active + stats.prefilling),
            ("num_requests_waiting", "Choices without a slot.", stats.queued),
            ("num_requests_prefilling", "Choices whose prompt is being read.", stats.prefilling),
            ("requests_open", "Accepted requests without an end.", service.telemetry.open_requests()),
            ("kv_pool_blocks_total", "Blocks of the K/V pool.", blocks),
            ("kv_pool_blocks_in_use", "Blocks that requests hold.", in_use),
            ("kv_cache_usage_perc", "Share of the blocks in use, 0 to 1.", in_use / blocks if blocks else 0),
        ):
            yield _labelled(GaugeMetricFamily, gauge, text, name, float(value))
        for counter, text, value in (
            ("requests", "Valid requests, those shed included.", counts["requests_total"]),
            ("requests_shed", "Requests refused because the queue was full.", counts["requests_shed"]),
            ("requests_cancelled", "Requests whose client left.", counts["requests_cancelled"]),
            ("requests_failed", "Requests that the engine did not bring to their end.", counts["requests_failed"]),
            ("requests_rejected", "Requests refused with a 4xx.", counts["rejects_bad"]),
            ("prompt_tokens", "Prompt tokens read.", stats.prompt_tokens),
            ("prompt_tokens_computed", "Prompt tokens computed.", stats.prompt_tokens_computed),
            ("generation_tokens", "Tokens generated.", stats.tokens_generated),
            ("prompts_prefilled", "Prompts read to their end.", stats.prompts_prefilled),
            ("prefill_seconds", "Time in steps that only read prompts.", stats.prefill_ms / 1e3),
            ("decode_steps", "Steps with decoding rows.", stats.decode_steps),
            ("decode_rows", "Decoding rows.", stats.decode_rows),
            ("decode_step_seconds", "Time in steps with decoding rows.", stats.step_ms / 1e3),
        ):
            yield _labelled(CounterMetricFamily, counter, text, name, float(value))
        reasons = service.telemetry.finish_reasons()
        finished = CounterMetricFamily("dgpp_request_finished", "Ended choices.", labels=["model_name", "reason"])
        for reason in FINISH_REASONS:
            finished.add_metric([name, reason], reasons.get(reason, 0))
        yield finished


def _labelled(
    family: type[GaugeMetricFamily] | type[CounterMetricFamily], metric: str, text: str, model: str, value: float
) -> Metric:
    result = family(f"dgpp_{metric}", text, labels=["model_name"])
    result.add_metric([model], value)
    return result
