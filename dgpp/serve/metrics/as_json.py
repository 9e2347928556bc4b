"""The JSON counters: every name of spec/api.md §13.

This engine attaches no prefixes, drafts no tokens and keeps no disk tier: those parts say so with `enabled` false or
depth 0, and count nothing. Values are read live, so the snapshot has no age.
"""

from __future__ import annotations

from typing import Any

from dgpp.engine.request import EngineInfo, EngineStats
from dgpp.serve.service import Service

ADMISSION_MODE = "reserve"
"""A request is admitted when the pool holds pages for its prompt and its whole budget; reservations never grow."""
MOST_SLOTS = 16

PREFIX_CACHE_COUNTS = (
    *("hits", "misses", "tokens_saved", "snapshots", "head_snapshots", "close_entries", "rolling_snapshots"),
    *("hop_snapshots", "evictions", "duplicates", "skipped_no_block", "skipped_no_slot", "skipped_image_bytes"),
)
_NVME_CACHE = (
    *("pages_total", "pages_used", "page_bytes", "bytes_total", "bytes_used", "entries", "blocks", "spills", "spilled"),
    *("spill_failed", "spill_skipped", "restores", "restored", "restore_failed", "tokens_restored", "blocks_shared"),
    *("evictions", "pending", "worker_pending", "bytes_written", "bytes_read", "failures"),
    *("spill_ms_avg", "restore_ms_avg"),
)


def snapshot(service: Service) -> dict[str, Any]:
    """The body of GET /metrics."""
    stats, info = service.engine.stats(), service.engine.info
    return {
        "scheduler": _scheduler(stats),
        "service": _service(service, stats, info),
        "prefix_cache": _prefix_cache(),
        "prefill": _prefill(stats),
        "nvme_cache": {"enabled": False, **dict.fromkeys(_NVME_CACHE, 0)},
    }


def by_slots(stats: EngineStats) -> dict[str, int]:
    """Decode steps by the number of requests that decoded, from 1 on."""
    most = max(MOST_SLOTS, *stats.decode.by_active, 0)
    return {str(slots): stats.decode.by_active.get(slots, 0) for slots in range(1, most + 1)}


def _scheduler(stats: EngineStats) -> dict[str, Any]:
    return {
        "active": stats.active,
        "queued": stats.queued,
        "terminal": sum(stats.finished.values()) + stats.requests_failed,
        "records": stats.active + stats.queued + stats.prefilling,
        "record_tokens": stats.record_tokens,
        "pool_blocks_total": stats.pool_blocks_total,
        "pool_blocks_in_use": stats.pool_blocks_in_use,
        "prefilling": stats.prefilling,
        "tokens_generated": stats.tokens_generated,
        "snapshot_age_ms": 0,
        "prompts_prefilled": stats.prompts_prefilled,
        "prompt_tokens": stats.prompt_tokens,
        "prompt_tokens_computed": stats.prompt_tokens_computed,
        "decode_steps": stats.decode_steps,
        "decode_rows": stats.decode_rows,
        "decode_batch": {
            "last_slots": stats.decode.last_slots,
            "last_active": stats.decode.last_active,
            "last_rows_per_request": 1 if stats.decode.last_active else 0,
            "replays": stats.decode_steps,
            "rows": stats.decode_rows,
            "padded_rows": stats.decode.padded_rows,
            "replays_by_slots": by_slots(stats),
        },
        "spec_decode": {
            "depth": 0,
            "num_drafts_total": 0,
            "num_draft_tokens_total": 0,
            "num_accepted_tokens_total": 0,
            "num_draft_tokens_per_pos_total": [],
            "num_accepted_tokens_per_pos_total": [],
        },
        "prefill_ms": stats.prefill_ms,
        "prefill_request_ms": stats.prefill_request_ms,
        "step_ms": stats.step_ms,
        "compiles_after_ready": stats.compiles_after_ready,
    }


def _service(service: Service, stats: EngineStats, info: EngineInfo) -> dict[str, Any]:
    counts = service.telemetry.counts()
    return {
        "requests_total": counts["requests_total"],
        "requests_shed": counts["requests_shed"],
        "requests_finished": counts["requests_finished"],
        "pending_admissions": stats.pending_admissions,
        "pending_cancellations": stats.pending_cancellations,
        "requests_cancelled": counts["requests_cancelled"],
        "requests_shed_pool": 0,
        "requests_failed": counts["requests_failed"],
        "requests_open": service.telemetry.open_requests(),
        "engine_failed": stats.failed is not None,
        "reservations_grown": 0,
        "admission": {
            "mode": ADMISSION_MODE,
            "window": 0,
            "prefill_budget_tokens": info.prefill_budget,
            "prefill_idle_budget_tokens": info.idle_prefill_budget,
        },
        "tokens_out": counts["tokens_out"],
        "rejects_bad": counts["rejects_bad"],
        "tool_calls_out": counts["tool_calls_out"],
        "tool_calls_malformed": counts["tool_calls_malformed"],
    }


def _prefix_cache() -> dict[str, Any]:
    sizes = ("slots", "min_tokens", "head_cuts", "entries")
    bytes_held = ("image_bytes", "blocks_pinned", "snapshot_bytes", "arena_snapshots", "snapshot_ms_avg")
    attached = ("arena_attaches", "attach_ms_avg", "ttft_hit_count", "ttft_hit_ms_avg")
    missed = ("ttft_miss_count", "ttft_miss_ms_avg")
    names = (*sizes, *PREFIX_CACHE_COUNTS, *bytes_held, *attached, *missed)
    return {"enabled": False, **dict.fromkeys(names, 0), "key": None}


def _prefill(stats: EngineStats) -> dict[str, Any]:
    requests = [
        {
            "id": one.id,
            "slot": one.slot,
            "prompt_tokens": one.prompt_tokens,
            "processed_tokens": one.computed_tokens,
            "cached_tokens": 0,
            "computed_tokens": one.computed_tokens,
            "remaining_tokens": one.prompt_tokens - one.computed_tokens,
            "elapsed_ms": one.elapsed_ms,
        }
        for one in stats.prefills
    ]
    names = ("prompt_tokens", "processed_tokens", "cached_tokens", "computed_tokens", "remaining_tokens")
    return {"requests": requests, **{name: sum(int(one[name]) for one in requests) for name in names}}
