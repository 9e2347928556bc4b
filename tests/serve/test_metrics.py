"""Counters and histograms that add up."""

from __future__ import annotations

import json
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dgpp.engine.request import FailEvent
from dgpp.serve.metrics.telemetry import LATENCY_BUCKETS, TOKEN_BUCKETS
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.chat import parse_chat
from tests.serve.metric_names import (
    ADMISSION,
    DECODE_BATCH,
    JSON_NAMES,
    LABELLED,
    LEGACY_NAMES,
    PREFILL_REQUEST,
    PROMETHEUS_NAMES,
    SPEC_DECODE,
)
from tests.serve.support import NAME, Bench, chat, eventually, ids, read_events, user


def scrape(made: Bench) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by (name, labels but the model's), which every sample must carry."""
    reply = made.client.get("/metrics/prometheus")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {}
    for family in text_string_to_metric_families(reply.get_data(as_text=True)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name", None) == (NAME if family.name.startswith("dgpp_") else None), sample
            key = (sample.name, tuple(sorted(labels.items())))
            assert key not in samples
            samples[key] = sample.value
    return samples


def abandoned_stream(made: Bench, chunks: int) -> None:
    """A streamed request whose reader leaves after some chunks."""
    reply = made.client.post("/v1/chat/completions", json=chat(stream=True), buffered=False)
    for _, _ in zip(range(chunks), reply.response, strict=False):
        pass
    reply.close()


def test_Q1_started_is_finished_aborted_failed_and_running(bench: Callable[..., Bench]) -> None:
    def script(request: object, index: int) -> list[int | FailEvent]:
        prompt = bytes(id for id in request.prompt if id < 256)  # type: ignore[attr-defined]
        return [*ids("abc"), FailEvent("engine_failure", "")] if b"fail" in prompt else ids("x" * 150)

    made = bench(script, info=Bench.info(max_concurrency=1, queue_limit=2), step_seconds=0.0005)
    for _ in range(4):
        assert made.client.post("/v1/chat/completions", json=chat(max_tokens=3)).status_code == 200
    assert made.client.post("/v1/chat/completions", json=chat(stop="xx")).status_code == 200
    assert made.client.post("/v1/chat/completions", json=chat(messages=user("fail"))).status_code == 503
    assert made.client.post("/v1/chat/completions", json=chat(n=0)).status_code == 400
    assert made.client.post("/v1/chat/completions", json=chat(max_tokens=5000)).status_code == 400
    abandoned_stream(made, chunks=3)
    assert eventually(lambda: made.engine.stats().active == 0)
    made.engine.hold("prefill")
    asked = parse_chat(parse_body(json.dumps(chat()).encode()), made.service.served)
    waiting = [made.service.chat(asked)]
    assert eventually(lambda: made.engine.stats().prefilling == 1)
    waiting += [made.service.chat(asked) for _ in range(2)]
    assert made.client.post("/v1/chat/completions", json=chat()).status_code == 503

    counts = made.counts()
    assert {name: counts[name] for name in counts if name.startswith("requests_")} == {
        "requests_total": 11,
        "requests_shed": 1,
        "requests_shed_pool": 0,
        "requests_finished": 5,
        "requests_cancelled": 1,
        "requests_failed": 1,
        "requests_open": 3,
    }
    assert (counts["engine_failed"], counts["rejects_bad"]) == (False, 2)
    samples = scrape(made)
    ended = {reason: samples["dgpp_request_finished_total", (("reason", reason),)] for reason in ("length", "stop")}
    assert ended == {"length": 4, "stop": 1}
    assert samples["dgpp_request_finished_total", (("reason", "cancelled"),)] == 1
    assert samples["dgpp_request_finished_total", (("reason", "none"),)] == 1
    assert samples["dgpp_requests_total", ()] == 11
    assert samples["dgpp_num_requests_running", ()] + samples["dgpp_num_requests_waiting", ()] == 3
    assert samples["dgpp_time_to_first_token_seconds_count", (("prefix_cache", "miss"),)] == 7
    assert samples["dgpp_time_to_first_token_seconds_count", (("prefix_cache", "hit"),)] == 0
    assert samples["dgpp_request_queue_time_seconds_count", ()] == 7
    assert samples["dgpp_request_prefill_time_seconds_count", ()] == 7
    assert samples["dgpp_e2e_request_latency_seconds_count", ()] == 7
    assert samples["dgpp_request_generation_tokens_count", ()] == 7

    for turn in waiting:
        turn.close()  # its client left before a token came
    made.engine.release()
    assert eventually(lambda: made.engine.stats().pool_blocks_in_use == 0)
    assert made.counts()["requests_cancelled"] == 4
    assert made.counts()["requests_open"] == 0
    samples = scrape(made)
    assert samples["dgpp_time_to_first_token_seconds_count", (("prefix_cache", "miss"),)] == 7
    assert samples["dgpp_e2e_request_latency_seconds_count", ()] == 10


def test_Q1_buckets_are_cumulative(bench: Callable[..., Bench]) -> None:
    made = bench("abcdef")
    for n in (1, 3):
        made.client.post("/v1/chat/completions", json=chat(n=n))
    samples = scrape(made)
    checked = 0
    for name, labels in samples:
        if not name.endswith("_count"):
            continue
        family = name.removesuffix("_count")
        rungs = sorted(
            (float(dict(other)["le"]), value)
            for (bucket, other), value in samples.items()
            if bucket == f"{family}_bucket" and set(labels) <= set(other)
        )
        values = [value for _, value in rungs]
        assert values == sorted(values)
        assert values[-1] == samples[name, labels]
        checked += 1
    assert checked == 11
    assert samples["dgpp_request_prompt_tokens_count", ()] == 4
    assert samples["dgpp_request_generation_tokens_sum", ()] == 4 * 7
    assert samples["dgpp_inter_token_latency_seconds_count", ()] == 4 * 6


def test_bucket_edges() -> None:
    for edges, low, high in ((LATENCY_BUCKETS, 0.001, 640), (TOKEN_BUCKETS, 1, 10**6)):
        assert list(edges) == sorted(set(edges))
        assert (edges[0], edges[-1]) == (low, high)


def test_json_metrics_have_one_body(bench: Callable[..., Bench]) -> None:
    made = bench("abc")
    made.client.post("/v1/chat/completions", json=chat())
    body = made.client.get("/metrics").get_json()
    assert json.dumps(body) == json.dumps(made.client.get("/v1/metrics").get_json())
    scheduler = body["scheduler"]
    assert (scheduler["active"], scheduler["queued"], scheduler["terminal"]) == (0, 0, 1)
    assert (scheduler["tokens_generated"], scheduler["prompts_prefilled"]) == (4, 1)
    assert scheduler["prompt_tokens"] == 21
    assert body["service"]["tokens_out"] == 4


def test_two_apps_do_not_share_counters(bench: Callable[..., Bench]) -> None:
    first, second = bench(), bench()
    first.client.post("/v1/chat/completions", json=chat())
    assert scrape(first)["dgpp_requests_total", ()] == 1
    assert scrape(second)["dgpp_requests_total", ()] == 0


def test_Q3_tokens_are_counted_and_not_events_or_steps(bench: Callable[..., Bench]) -> None:
    made = bench("\u20ac" * 5 + "word", step_seconds=0.001)  # three tokens a character: fewer events than tokens
    for n in (1, 2):
        options = {"include_usage": True}
        reply = made.client.post("/v1/chat/completions", json=chat(stream=True, stream_options=options, n=n))
        events = read_events(reply.data)
        usage = events[-1]["usage"]
        assert usage["completion_tokens"] == n * (5 * 3 + 4 + 1)
        assert len(events) < usage["completion_tokens"]
    samples = scrape(made)
    assert samples["dgpp_generation_tokens_total", ()] == 60
    assert made.counts()["tokens_out"] == 60
    assert samples["dgpp_decode_rows_total", ()] == 60
    assert samples["dgpp_decode_steps_total", ()] < 60  # two choices share a step
    assert samples["dgpp_decode_step_duration_seconds_count", ()] == samples["dgpp_decode_steps_total", ()]
    assert samples["dgpp_spec_decode_num_accepted_tokens_total", ()] == 0


def test_Q3_steps_and_their_widths(bench: Callable[..., Bench]) -> None:
    made = bench("abc", step_seconds=0.003)
    made.client.post("/v1/chat/completions", json=chat(n=3))
    samples = scrape(made)
    by_slots = {n: samples["dgpp_decode_batch_replays_by_slots_total", (("slots", str(n)),)] for n in range(1, 17)}
    assert by_slots == {**dict.fromkeys(range(1, 17), 0), 3: 4}
    assert samples["dgpp_decode_step_duration_seconds_sum", ()] >= 4 * 0.003
    assert samples["dgpp_decode_step_duration_seconds_bucket", (("le", "0.0025"),)] == 0
    batch = made.client.get("/metrics").get_json()["scheduler"]["decode_batch"]
    assert (batch["last_active"], batch["replays"], batch["rows"]) == (3, 4, 12)
    assert list(batch["replays_by_slots"]) == [str(n) for n in range(1, 17)]


def test_api_13_a_prompt_that_is_read_shows_its_progress(bench: Callable[..., Bench]) -> None:
    made = bench("ok", hold=("prefill",))
    waiting = made.service.chat(parse_chat(parse_body(json.dumps(chat()).encode()), made.service.served))
    assert eventually(lambda: made.engine.stats().prefilling == 1)
    prefill = made.client.get("/metrics").get_json()["prefill"]
    (one,) = prefill["requests"]
    assert set(one) == PREFILL_REQUEST
    assert one["prompt_tokens"] == one["remaining_tokens"] == prefill["remaining_tokens"] == 21
    assert one["elapsed_ms"] >= 0
    assert scrape(made)["dgpp_prefill_inflight_remaining_tokens", ()] == 21
    waiting.close()


def test_api_13_every_name_is_there(bench: Callable[..., Bench]) -> None:
    body = bench().client.get("/metrics").get_json()
    assert set(body) == set(JSON_NAMES)
    for part, names in JSON_NAMES.items():
        assert names <= set(body[part]), part
    assert set(body["scheduler"]["decode_batch"]) == DECODE_BATCH
    assert set(body["scheduler"]["spec_decode"]) == SPEC_DECODE
    assert set(body["service"]["admission"]) == ADMISSION
    for missing in ("prefix_cache", "nvme_cache"):
        values = dict(body[missing])
        assert values.pop("enabled") is False
        assert {value for name, value in values.items() if name != "key"} == {0}


def test_api_14_every_name_is_there(bench: Callable[..., Bench]) -> None:
    made = bench("abc")
    made.client.post("/v1/chat/completions", json=chat())
    text = made.client.get("/metrics/prometheus").get_data(as_text=True)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for kind, names in PROMETHEUS_NAMES.items():
        for name in names:
            family = families.pop(f"dgpp_{name.removesuffix('_total') if kind == 'counter' else name}")
            assert family.type == kind, name
            assert family.documentation
    extra = {"dgpp_requests_open", "dgpp_tool_calls_malformed"}
    assert set(families) == extra | {name.removesuffix("_total") for name in LEGACY_NAMES}
    assert [line for line in text.splitlines() if not line.startswith("#")][:3] == [f"{n} 0.0" for n in LEGACY_NAMES]
    labels = {name: sample.labels for name, sample in ((f, families_sample(text, f)) for f in LABELLED)}
    for name, wanted in LABELLED.items():
        assert set(labels[name]) == {"model_name", *wanted}, name


def families_sample(text: str, name: str) -> Sample:
    """The first sample of a name."""
    found = (s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name)
    return next(found)
