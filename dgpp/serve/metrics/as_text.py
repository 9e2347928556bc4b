"""The Prometheus families: every name of spec/api.md §14, made at scrape time of one snapshot of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dgpp import __version__
from dgpp.engine.request import STEP_EDGES, EngineInfo, EngineStats
from dgpp.serve.metrics.as_json import ADMISSION_MODE, PREFIX_CACHE_COUNTS, by_slots
from dgpp.serve.service import Service

FINISH_REASONS = ("none", "eos", "length", "cancelled", "pool_exhausted", "stop")
LEGACY = ("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens", "spec_decode_num_drafts")
GIT_SHA = "unknown"
"""What stands in the label of that name: an installed package does not know its commit."""


@dataclass(frozen=True)
class _View:
    """What one scrape sees."""

    stats: EngineStats
    info: EngineInfo
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    open_requests: int


Value = Callable[[_View], float]


@dataclass(frozen=True)
class _Family:
    """One family. `value` is its only sample, or `samples` gives those of the values of `label`."""

    name: str
    text: str
    value: Value = lambda view: 0
    label: str | None = None
    samples: Callable[[_View], Mapping[str, float]] = field(default=lambda view: {})


_NONE = "Of the prefix cache, which this engine does not have."
_NO_DRAFTS = "Of speculative decoding, which this engine does not have."

GAUGES = (
    _Family("engine_failed", "1 after the engine stopped with an error.", lambda v: v.stats.failed is not None),
    _Family("max_concurrent_requests", "Slots.", lambda v: v.info.max_concurrency),
    _Family("queue_limit", "Most requests that may wait; 0: no limit.", lambda v: v.info.queue_limit),
    _Family("kv_pool_tokens", "Tokens that the K/V pool holds.", lambda v: v.info.pool_tokens),
    _Family("admission_window_tokens", "Tokens reserved ahead under grow admission; 0: all of a budget is reserved."),
    _Family(
        "admission_prefill_budget_tokens",
        "Prompt tokens that a step reads while requests decode.",
        lambda v: v.info.prefill_budget,
    ),
    _Family(
        "admission_prefill_idle_budget_tokens",
        "Prompt tokens that a step reads while none does.",
        lambda v: v.info.idle_prefill_budget,
    ),
    _Family("num_requests_running", "Choices in a slot.", lambda v: v.stats.active + v.stats.prefilling),
    _Family("num_requests_waiting", "Choices without a slot.", lambda v: v.stats.queued),
    _Family("num_requests_prefilling", "Choices whose prompt is being read.", lambda v: v.stats.prefilling),
    _Family("pending_admissions", "Choices the engine has not seen yet.", lambda v: v.stats.pending_admissions),
    _Family("pending_cancellations", "Choices the next step ends.", lambda v: v.stats.pending_cancellations),
    _Family("requests_open", "Accepted requests without an end.", lambda v: v.open_requests),
    _Family("kv_pool_blocks_total", "Blocks of the K/V pool.", lambda v: v.stats.pool_blocks_total),
    _Family("kv_pool_blocks_in_use", "Blocks that requests hold.", lambda v: v.stats.pool_blocks_in_use),
    _Family(
        "kv_cache_usage_perc",
        "Share of the blocks in use, 0 to 1.",
        lambda v: v.stats.pool_blocks_in_use / v.stats.pool_blocks_total if v.stats.pool_blocks_total else 0,
    ),
    _Family("scheduler_snapshot_age_seconds", "0: the counters are read live."),
    _Family(
        "prefill_inflight_prompt_tokens",
        "Tokens of the prompts that are being read.",
        lambda v: sum(one.prompt_tokens for one in v.stats.prefills),
    ),
    _Family(
        "prefill_inflight_remaining_tokens",
        "Those of them still to be read.",
        lambda v: sum(one.prompt_tokens - one.computed_tokens for one in v.stats.prefills),
    ),
    _Family(
        "decode_batch_last_slots", "Rows of the last decode step, with padding.", lambda v: v.stats.decode.last_slots
    ),
    _Family("decode_batch_last_active", "Choices that decoded in it.", lambda v: v.stats.decode.last_active),
    _Family(
        "decode_batch_last_rows_per_request",
        "Rows that each of them had.",
        lambda v: 1 if v.stats.decode.last_active else 0,
    ),
    _Family("spec_decode_depth", _NO_DRAFTS),
    *(_Family(f"prefix_cache_{name}", _NONE) for name in ("slots", "entries", "blocks_pinned", "snapshot_bytes")),
)

COUNTERS = (
    _Family("requests", "Valid requests, those shed included.", lambda v: v.counts["requests_total"]),
    _Family("requests_shed", "Requests refused because the queue was full.", lambda v: v.counts["requests_shed"]),
    _Family("requests_shed_pool", "Choices ended because the pool was exhausted: never, budgets are reserved."),
    _Family("requests_cancelled", "Requests whose client left.", lambda v: v.counts["requests_cancelled"]),
    _Family("requests_failed", "Requests not brought to their end.", lambda v: v.counts["requests_failed"]),
    _Family("requests_rejected", "Requests refused with a 4xx.", lambda v: v.counts["rejects_bad"]),
    _Family("tool_calls", "Tool calls in answers.", lambda v: v.counts["tool_calls_out"]),
    _Family(
        "tool_calls_malformed",
        "Tool calls that could not be read and were shown as text.",
        lambda v: v.counts["tool_calls_malformed"],
    ),
    _Family("reservations_grown", "Reservations that grew: never, budgets are reserved."),
    _Family(
        "request_finished",
        "Ended choices.",
        label="reason",
        samples=lambda v: {reason: v.reasons.get(reason, 0) for reason in FINISH_REASONS},
    ),
    _Family("prompt_tokens", "Prompt tokens read.", lambda v: v.stats.prompt_tokens),
    _Family("prompt_tokens_computed", "Prompt tokens computed.", lambda v: v.stats.prompt_tokens_computed),
    _Family(
        "prompt_tokens_cached",
        "Prompt tokens taken from the prefix cache.",
        lambda v: v.stats.prompt_tokens - v.stats.prompt_tokens_computed,
    ),
    _Family("generation_tokens", "Tokens generated.", lambda v: v.stats.tokens_generated),
    _Family("prompts_prefilled", "Prompts read to their end.", lambda v: v.stats.prompts_prefilled),
    _Family("prefill_seconds", "Time in steps that only read prompts.", lambda v: v.stats.prefill_ms / 1e3),
    _Family(
        "prefill_request_seconds",
        "Time from a slot to the first token, over all prompts.",
        lambda v: v.stats.prefill_request_ms / 1e3,
    ),
    _Family("decode_steps", "Steps with decoding rows.", lambda v: v.stats.decode_steps),
    _Family("decode_rows", "Decoding rows.", lambda v: v.stats.decode_rows),
    _Family("decode_step_seconds", "Time in steps with decoding rows.", lambda v: v.stats.step_ms / 1e3),
    _Family("decode_batch_replays", "Steps with decoding rows.", lambda v: v.stats.decode_steps),
    _Family("decode_batch_rows", "Decoding rows.", lambda v: v.stats.decode_rows),
    _Family("decode_batch_padded_rows", "Padding rows in them.", lambda v: v.stats.decode.padded_rows),
    _Family(
        "decode_batch_replays_by_slots",
        "Steps by the number of choices that decoded.",
        label="slots",
        samples=lambda v: by_slots(v.stats),
    ),
    *(_Family(name, _NO_DRAFTS) for name in LEGACY),
    _Family("spec_decode_num_draft_tokens_per_pos", _NO_DRAFTS, label="position"),
    _Family("spec_decode_num_accepted_tokens_per_pos", _NO_DRAFTS, label="position"),
    *(
        _Family(f"prefix_cache_{name}", _NONE)
        for name in (*PREFIX_CACHE_COUNTS, "queries", "arena_snapshots", "arena_attaches")
    ),
    _Family("prefix_cache_arena_snapshot_seconds", _NONE),
    _Family("prefix_cache_arena_attach_seconds", _NONE),
)

RANK_GAUGES = (
    _Family("rank_num_requests_running", "Choices in a slot.", lambda v: v.stats.active + v.stats.prefilling),
    _Family("rank_kv_pool_blocks_total", "Blocks of the K/V pool.", lambda v: v.stats.pool_blocks_total),
    _Family("rank_kv_pool_blocks_in_use", "Blocks that requests hold.", lambda v: v.stats.pool_blocks_in_use),
    _Family("rank_snapshot_age_seconds", "0: the counters are read live."),
)
RANK_COUNTERS = (
    _Family("rank_decode_steps", "Steps with decoding rows.", lambda v: v.stats.decode_steps),
    _Family("rank_decode_step_seconds", "Time in them.", lambda v: v.stats.step_ms / 1e3),
    _Family("rank_prefill_seconds", "Time in steps that only read prompts.", lambda v: v.stats.prefill_ms / 1e3),
    _Family("rank_generation_tokens", "Tokens generated.", lambda v: v.stats.tokens_generated),
    _Family("rank_collectives", "Collectives between processes: one process serves."),
)


class Families(Collector):
    """All metric families of a service; `prometheus_client.generate_latest` writes them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """The families, first the three counters without labels that older dashboards know."""
        service = self._service
        name = service.telemetry.model_name
        stats, info = service.engine.stats(), service.engine.info
        telemetry = service.telemetry
        view = _View(stats, info, telemetry.counts(), telemetry.finish_reasons(), telemetry.open_requests())
        for legacy in LEGACY:
            yield CounterMetricFamily(legacy, _NO_DRAFTS, value=0)
        world = str(info.world_size)
        yield _info("build_info", "The version that runs.", name, world_size=world, admission=ADMISSION_MODE)
        yield from (_made(GaugeMetricFamily, family, view, name) for family in GAUGES)
        yield from (_made(CounterMetricFamily, family, view, name) for family in COUNTERS)
        yield _step_durations(stats, name)
        yield from _without_times_of_creation(telemetry.registry.collect())
        yield _info("rank_info", "The process that serves.", name, rank="0", world_size=world)
        yield from (_made(GaugeMetricFamily, family, view, name, rank="0") for family in RANK_GAUGES)
        yield from (_made(CounterMetricFamily, family, view, name, rank="0") for family in RANK_COUNTERS)


def _made(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], family: _Family, view: _View, model: str, **labels: str
) -> Metric:
    own = [] if family.label is None else [family.label]
    metric = kind(f"dgpp_{family.name}", family.text, labels=["model_name", *labels, *own])
    if family.label is None:
        metric.add_metric([model, *labels.values()], float(family.value(view)))
    for value, amount in family.samples(view).items():
        metric.add_metric([model, *labels.values(), value], float(amount))
    return metric


def _info(name: str, text: str, model: str, **labels: str) -> Metric:
    labels = {"model_name": model, "version": __version__, "git_sha": GIT_SHA, **labels}
    metric = GaugeMetricFamily(f"dgpp_{name}", text, labels=list(labels))
    metric.add_metric(list(labels.values()), 1)
    return metric


def _step_durations(stats: EngineStats, model: str) -> Metric:
    metric = HistogramMetricFamily(
        "dgpp_decode_step_duration_seconds", "Steps with decoding rows.", labels=["model_name"]
    )
    edges = [*(str(edge) for edge in STEP_EDGES), "+Inf"]
    counts = accumulate(stats.decode.durations)
    metric.add_metric([model], list(zip(edges, counts, strict=True)), stats.step_ms / 1e3)
    return metric


def _without_times_of_creation(metrics: Iterable[Metric]) -> Iterator[Metric]:
    """prometheus_client adds a sample of when each series began, which would look like a family of its own."""
    for metric in metrics:
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric
