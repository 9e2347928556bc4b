"""What every request goes through: ids, cross-origin rules, keys, waiting times, and errors that tell nothing."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dgpp.serve import sse
from dgpp.serve.requests.body import parse_body
from dgpp.serve.requests.chat import parse_chat
from dgpp.serve.turn import Turn
from dgpp.text.pipeline import Pipeline
from dgpp.text.template import ChatTemplate
from dgpp.text.tokenizer import Tokenizer
from tests.serve.support import NAME, Bench, chat, eventually, read_events
from tests.serve.wire import Serving, connect, post, read_all

Benches = Callable[..., Bench]
SITE = "https://app.example"


@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions", "/nothing"])
def test_api_1_a_request_id_is_sent_back(bench: Benches, path: str) -> None:
    client = bench().client
    assert client.get(path, headers={"X-Request-Id": "from-a-proxy/7"}).headers["X-Request-Id"] == "from-a-proxy/7"
    made = [client.get(path).headers["X-Request-Id"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(each.startswith("req_") and len(each) == 28 for each in made)


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, "caf\u00e9", "a\tb"])
def test_api_1_an_unusable_request_id_is_replaced(bench: Benches, sent: str) -> None:
    given = bench().client.get("/health", headers={"X-Request-Id": sent}).headers["X-Request-Id"]
    assert given.startswith("req_")


def test_api_1_the_log_ties_request_ids_to_answers(bench: Benches, caplog: pytest.LogCaptureFixture) -> None:
    made = bench()
    with caplog.at_level(logging.INFO, logger="dgpp"):
        answer = made.client.post("/v1/chat/completions", json=chat(), headers={"X-Request-Id": "abc"}).get_json()
        made.client.post("/nothing%0A2026 forged", headers={"X-Request-Id": "evil"})
    lines = [record.getMessage() for record in caplog.records if record.name == "dgpp.serve.request_ids"]
    assert lines[0] == f"abc POST /v1/chat/completions: 200 {answer['id']}"
    assert lines[1] == r"evil POST /nothing\n2026 forged: 404"


def preflight(made: Bench, origin: str, path: str = "/v1/chat/completions") -> Any:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
    }
    return made.client.options(path, headers=headers)


def test_http_cors_is_off_by_default(bench: Benches) -> None:
    made = bench()
    assert preflight(made, SITE).status_code == 405
    reply = made.client.get("/v1/models", headers={"Origin": SITE})
    assert not [name for name in reply.headers.keys() if name.startswith("Access-Control")]  # noqa: SIM118


@pytest.mark.parametrize(("allowed", "told"), [((SITE, "http://localhost:3000"), SITE), (("*",), "*")])
def test_http_cors_lets_listed_pages_read(bench: Benches, allowed: tuple[str, ...], told: str) -> None:
    made = bench(cors_origins=allowed, api_key="secret")
    asked = preflight(made, SITE)  # a preflight carries no key
    assert (asked.status_code, asked.data) == (204, b"")
    assert asked.headers["Access-Control-Allow-Origin"] == told
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    assert asked.headers["Access-Control-Allow-Headers"] == "authorization,content-type,x-stainless-os"
    assert "Access-Control-Allow-Credentials" not in asked.headers
    for headers in ({}, {"Authorization": "Bearer secret"}):  # a page has to be able to read its 401 too
        reply = made.client.get("/v1/models", headers={"Origin": SITE, **headers})
        assert reply.headers["Access-Control-Allow-Origin"] == told
        assert "X-Request-Id" in reply.headers["Access-Control-Expose-Headers"]
        assert ("Origin" in reply.vary) == (told != "*")


def test_http_cors_keeps_other_pages_out(bench: Benches) -> None:
    made = bench(cors_origins=(SITE,))
    for origin in ("https://app.example.evil.test", "http://app.example", "null", SITE.upper()):
        assert preflight(made, origin).status_code == 405
        reply = made.client.get("/v1/models", headers={"Origin": origin})
        assert "Access-Control-Allow-Origin" not in reply.headers
        assert "Origin" in reply.vary
    assert "Access-Control-Allow-Origin" not in made.client.get("/v1/models").headers
    assert made.client.options("/v1/models", headers={"Origin": SITE}).status_code == 405  # no preflight


def test_Z2_a_key_may_come_as_x_api_key(bench: Benches) -> None:
    client = bench(api_key="secret").client
    assert client.get("/v1/models", headers={"X-Api-Key": "secret"}).status_code == 200
    for wrong in ("", "Secret", "secret2", "Bearer secret"):
        assert client.get("/v1/models", headers={"X-Api-Key": wrong}).status_code == 401
    refused = client.post("/v1/messages", json={})
    assert (refused.status_code, refused.get_json()["error"]["type"]) == (401, "authentication_error")
    assert refused.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("status", [503, 429])
@pytest.mark.parametrize("stream", [True, False])
def test_api_6_9_a_full_queue_says_when_to_come_back(bench: Benches, status: int, stream: bool) -> None:
    made = bench(hold=("queue",), info=Bench.info(queue_limit=1), overload_status=status)
    assert made.client.post("/v1/chat/completions", json=chat(n=2)).status_code == status  # all of a group or none
    waiting = made.service.chat(parse_chat(parse_body(json.dumps(chat()).encode()), made.service.served))
    refused = made.client.post("/v1/chat/completions", json=chat(stream=stream))
    error = refused.get_json()["error"]
    assert (refused.status_code, error["code"], refused.headers["Retry-After"]) == (status, "overloaded", "1")
    assert error["type"] == ("server_error" if status == 503 else "invalid_request_error")
    waiting.close()


def test_api_2_only_what_may_work_later_says_when(bench: Benches) -> None:
    made = bench()
    assert "Retry-After" not in made.client.post("/v1/chat/completions", json={}).headers
    made.engine.fail("gone")
    failed = made.client.post("/v1/chat/completions", json=chat())
    assert (failed.status_code, failed.get_json()["error"]["code"]) == (503, "engine_failure")
    assert "Retry-After" not in failed.headers


def test_api_1_1_a_refused_connection_says_when_to_come_back(serving: Serving) -> None:
    _, server = serving("ok", max_connections=1)
    held = connect(server)
    assert eventually(lambda: len(server._listener.active_channels) == 1)
    assert b"\r\nRetry-After: 1\r\n" in read_all(connect(server))
    held.close()


def test_shutdown_lets_streams_end_within_the_drain(serving: Serving) -> None:
    made, server = serving("x" * 100, step_seconds=0.005, drain_seconds=20)
    running = post(server, stream=True)
    assert eventually(lambda: made.engine.stats().active == 1)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert eventually(lambda: made.client.get("/health").status_code == 200)  # another application: not stopping
    late = post(server)
    assert (late.status, json.loads(late.read())["error"]["code"]) == (503, "server_shutdown")
    assert late.headers["Retry-After"] == "10"
    connection = connect(server)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    health = read_all(connection)
    assert health.startswith(b"HTTP/1.1 503 ")
    assert b'"status":"stopping"' in health
    chunks = read_events(running.read())
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    stopping.join(5)
    assert not stopping.is_alive()


def test_shutdown_cuts_what_outlives_the_drain(serving: Serving) -> None:
    made, server = serving("x" * 250, step_seconds=0.02, drain_seconds=0.3)
    running = post(server, stream=True)
    assert eventually(lambda: made.engine.stats().active == 1)
    started = time.monotonic()
    server.stop()
    assert 0.3 <= time.monotonic() - started < 2
    *chunks, last = read_events(running.read())
    assert last["error"]["code"] == "server_shutdown"
    assert len(chunks) > 10


SECRET = "/home/operator/secret.py line 7"


def explode(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(SECRET)


LAYERS: dict[str, tuple[Any, str]] = {
    "template": (ChatTemplate, "render"),
    "tokenizer": (Tokenizer, "encode_segments"),
    "pipeline": (Pipeline, "feed"),
    "turn": (Turn, "events"),
    "encoder": (sse, "encode_json"),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_http_no_exception_text_leaves(
    bench: Benches,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    layer: str,
    stream: bool,
    path: str,
) -> None:
    made = bench()
    body = chat(stream=stream, max_tokens=20)
    if path == "/v1/responses":
        body = {"model": NAME, "input": "hi", "stream": stream}
    target, name = LAYERS[layer]
    original, calls = getattr(target, name), [0]

    def once(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return explode() if calls[0] == 1 else original(*args, **kwargs)

    monkeypatch.setattr(target, name, once)
    reply = made.client.post(path, json=body)
    text = reply.get_data(as_text=True)
    reply.close()
    monkeypatch.undo()
    assert calls[0]
    assert SECRET not in text
    assert "RuntimeError" not in text
    assert "Traceback" not in text
    assert "error" in text
    assert reply.status_code == 500 or (stream and reply.status_code == 200)
    assert SECRET in caplog.text  # the operator is told
    assert eventually(lambda: made.counts()["requests_open"] == 0)
    assert eventually(lambda: made.engine.stats().active == 0)


@pytest.mark.parametrize("path", ["/health", "/metrics", "/metrics/prometheus", "/v1/models"])
def test_http_no_exception_text_leaves_routes_that_only_look(
    bench: Benches, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    made = bench()
    if path == "/v1/models":
        monkeypatch.setattr(type(made.service.engine), "info", property(explode))
    else:
        monkeypatch.setattr(made.engine, "stats", explode)
    reply = made.client.get(path)
    assert (reply.status_code, reply.get_json()["error"]["type"]) == (500, "server_error")
    assert SECRET not in reply.get_data(as_text=True)
