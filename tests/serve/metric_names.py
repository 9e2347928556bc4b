"""The names of metrics, typed from spec/api.md §13 and §14."""

from __future__ import annotations


def _names(text: str) -> list[str]:
    return text.split()


JSON_NAMES = {
    "scheduler": set(
        _names("""
        active queued terminal records record_tokens pool_blocks_total pool_blocks_in_use prefilling
        tokens_generated snapshot_age_ms prompts_prefilled prompt_tokens prompt_tokens_computed decode_steps
        decode_rows decode_batch spec_decode prefill_ms prefill_request_ms step_ms
        """)
    ),
    "service": set(
        _names("""
        requests_total requests_shed pending_admissions pending_cancellations requests_cancelled
        requests_shed_pool requests_failed engine_failed reservations_grown admission tokens_out rejects_bad
        tool_calls_out
        """)
    ),
    "prefix_cache": set(
        _names("""
        enabled slots min_tokens head_cuts entries hits misses tokens_saved snapshots head_snapshots
        close_entries rolling_snapshots hop_snapshots evictions duplicates skipped_no_block skipped_no_slot
        skipped_image_bytes image_bytes blocks_pinned snapshot_bytes arena_snapshots snapshot_ms_avg
        arena_attaches attach_ms_avg ttft_hit_count ttft_hit_ms_avg ttft_miss_count ttft_miss_ms_avg key
        """)
    ),
    "prefill": set(
        _names("""
        requests prompt_tokens processed_tokens cached_tokens computed_tokens remaining_tokens
        """)
    ),
    "nvme_cache": set(
        _names("""
        enabled pages_total pages_used page_bytes bytes_total bytes_used entries blocks spills spilled
        spill_failed spill_skipped restores restored restore_failed tokens_restored blocks_shared evictions
        pending worker_pending bytes_written bytes_read failures spill_ms_avg restore_ms_avg
        """)
    ),
}
DECODE_BATCH = set(
    _names("""
    last_slots last_active last_rows_per_request replays rows padded_rows replays_by_slots
    """)
)
SPEC_DECODE = set(
    _names("""
    depth num_drafts_total num_draft_tokens_total num_accepted_tokens_total num_draft_tokens_per_pos_total
    num_accepted_tokens_per_pos_total
    """)
)
ADMISSION = set(
    _names("""
    mode window prefill_budget_tokens prefill_idle_budget_tokens
    """)
)
PREFILL_REQUEST = set(
    _names("""
    id slot prompt_tokens processed_tokens cached_tokens computed_tokens remaining_tokens elapsed_ms
    """)
)
PROMETHEUS_NAMES = {
    "gauge": _names("""
    build_info engine_failed max_concurrent_requests queue_limit kv_pool_tokens admission_window_tokens
    admission_prefill_budget_tokens admission_prefill_idle_budget_tokens num_requests_running
    num_requests_waiting num_requests_prefilling pending_admissions pending_cancellations kv_pool_blocks_total
    kv_pool_blocks_in_use kv_cache_usage_perc scheduler_snapshot_age_seconds prefill_inflight_prompt_tokens
    prefill_inflight_remaining_tokens decode_batch_last_slots decode_batch_last_active
    decode_batch_last_rows_per_request spec_decode_depth prefix_cache_slots prefix_cache_entries
    prefix_cache_blocks_pinned prefix_cache_snapshot_bytes rank_info rank_num_requests_running
    rank_kv_pool_blocks_total rank_kv_pool_blocks_in_use rank_snapshot_age_seconds
    """),
    "counter": _names("""
    requests_total requests_shed_total requests_shed_pool_total requests_cancelled_total requests_failed_total
    requests_rejected_total tool_calls_total reservations_grown_total request_finished_total
    prompt_tokens_total prompt_tokens_computed_total prompt_tokens_cached_total generation_tokens_total
    prompts_prefilled_total prefill_seconds_total prefill_request_seconds_total decode_steps_total
    decode_rows_total decode_step_seconds_total decode_batch_replays_total decode_batch_rows_total
    decode_batch_padded_rows_total decode_batch_replays_by_slots_total spec_decode_num_drafts_total
    spec_decode_num_draft_tokens_total spec_decode_num_accepted_tokens_total
    spec_decode_num_draft_tokens_per_pos_total spec_decode_num_accepted_tokens_per_pos_total
    prefix_cache_hits_total prefix_cache_misses_total prefix_cache_queries_total
    prefix_cache_tokens_saved_total prefix_cache_snapshots_total prefix_cache_head_snapshots_total
    prefix_cache_close_entries_total prefix_cache_rolling_snapshots_total prefix_cache_hop_snapshots_total
    prefix_cache_evictions_total prefix_cache_duplicates_total prefix_cache_skipped_no_block_total
    prefix_cache_skipped_no_slot_total prefix_cache_skipped_image_bytes_total
    prefix_cache_arena_snapshots_total prefix_cache_arena_attaches_total
    prefix_cache_arena_snapshot_seconds_total prefix_cache_arena_attach_seconds_total rank_decode_steps_total
    rank_decode_step_seconds_total rank_prefill_seconds_total rank_generation_tokens_total
    rank_collectives_total
    """),
    "histogram": _names("""
    time_to_first_token_seconds request_queue_time_seconds request_prefill_time_seconds
    request_decode_time_seconds e2e_request_latency_seconds request_time_per_output_token_seconds
    inter_token_latency_seconds decode_step_duration_seconds request_prompt_tokens request_generation_tokens
    """),
}
LEGACY_NAMES = (
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_drafts_total",
)
LABELLED = {
    "dgpp_build_info": {"version", "git_sha", "world_size", "admission"},
    "dgpp_request_finished_total": {"reason"},
    "dgpp_decode_batch_replays_by_slots_total": {"slots"},
    "dgpp_time_to_first_token_seconds_bucket": {"prefix_cache", "le"},
    "dgpp_rank_info": {"rank", "world_size", "version", "git_sha"},
    "dgpp_rank_decode_steps_total": {"rank"},
}
"""What labels a sample has beside the model's name."""
