"""Counters and histograms that add up."""

from __future__ import annotations

import json
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from dgpp.engine.request import FailEvent
from dgpp.serve.body import parse_body
from dgpp.serve.requests import parse_chat
from dgpp.serve.telemetry import LATENCY_BUCKETS, TOKEN_BUCKETS
from tests.serve.support import NAME, Bench, chat, eventually, ids, user


def scrape(made: Bench) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by (name, labels but the model's), which every sample must carry."""
    reply = made.client.get("/metrics/prometheus")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {}
    for family in text_string_to_metric_families(reply.get_data(as_text=True)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == NAME, sample
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
    assert counts == {
        "requests_total": 11,
        "requests_shed": 1,
        "requests_finished": 5,
        "requests_cancelled": 1,
        "requests_failed": 1,
        "requests_open": 3,
        "engine_failed": False,
        "tokens_out": counts["tokens_out"],
        "rejects_bad": 2,
    }
    samples = scrape(made)
    ended = {reason: samples["dgpp_request_finished_total", (("reason", reason),)] for reason in ("length", "stop")}
    assert ended == {"length": 4, "stop": 1}
    assert samples["dgpp_request_finished_total", (("reason", "cancelled"),)] == 1
    assert samples["dgpp_request_finished_total", (("reason", "none"),)] == 1
    assert samples["dgpp_requests_total", ()] == 11
    assert samples["dgpp_num_requests_running", ()] + samples["dgpp_num_requests_waiting", ()] == 3
    assert samples["dgpp_time_to_first_token_seconds_count", (("prefix_cache", "miss"),)] == 7
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
    assert checked == 7
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
