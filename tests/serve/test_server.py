"""A real server on the loopback: flushing, hang-ups, keep-alive comments, limits, and an orderly end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from waitress.channel import ClientDisconnected

from dgpp.serve.server import HttpServer, headers_at_once
from dgpp.serve.settings import Settings
from dgpp.serve.sse import DONE, KEEP_ALIVE
from tests.serve.support import NAME, Bench, assembled, chat, eventually, ids, read_events, user
from tests.serve.wire import OneByOne, Serving, connect, post, read_all, request


def test_S7_every_token_leaves_before_the_next_is_generated(serving: Serving) -> None:
    script = OneByOne(ids("abcdefghij"))
    _, server = serving(lambda asked, index: script)
    reply = post(server, stream=True)
    for character in "abcdefghij":
        script.allowed.release()
        while f'"content":"{character}"'.encode() not in reply.readline():
            pass
    assert reply.read().endswith(DONE)


def test_A9_headers_at_admission_and_comments_while_waiting(serving: Serving) -> None:
    made, server = serving("ok", hold=("queue",), sse_ping_interval=30)
    started = time.monotonic()
    reply = post(server, stream=True, sse_ping_interval=1)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/event-stream"
    assert reply.headers["Transfer-Encoding"] == "chunked"
    assert made.engine.stats().queued == 1
    assert reply.readline() + reply.readline() == KEEP_ALIVE
    assert time.monotonic() - started > 0.9
    made.engine.release()
    rest = reply.read()
    assert rest.endswith(DONE)
    assert assembled(read_events(rest))[0]["content"] == "ok"


def test_A9_comments_during_prefill_and_none_when_off(serving: Serving) -> None:
    made, server = serving("ok", hold=("prefill",), sse_ping_interval=1)
    quiet = post(server, stream=True, sse_ping_interval=-1)  # its headers are here with nothing to follow them
    pinged = post(server, stream=True)
    assert eventually(lambda: made.engine.stats().prefilling == 2)
    assert pinged.readline() + pinged.readline() == KEEP_ALIVE
    made.engine.release()
    assert KEEP_ALIVE not in quiet.read()


def close(connection: socket.socket) -> None:
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("hang_up", [close, half_close, reset])
@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
@pytest.mark.parametrize("stream", [True, False])
def test_A7_hang_up_frees_the_slot(
    serving: Serving, hang_up: Callable[[socket.socket], None], stage: str, stream: bool
) -> None:
    hold = () if stage == "decode" else (stage,)
    made, server = serving("x" * 10_000, hold=hold, step_seconds=0.002, info=Bench.info(position_ceiling=4096))
    connection = connect(server)
    connection.sendall(request(chat(stream=stream, n=2)))
    stats = made.engine.stats
    where = {
        "queue": lambda: stats().queued == 2,
        "prefill": lambda: stats().prefilling == 2,
        "decode": lambda: stats().tokens_generated > 10,
    }
    assert eventually(where[stage])
    left = time.monotonic()
    hang_up(connection)
    assert eventually(lambda: stats().finished == {"cancelled": 2})
    assert time.monotonic() - left < 1
    assert (stats().active, stats().queued, stats().prefilling, stats().pool_blocks_in_use) == (0, 0, 0, 0)
    assert eventually(lambda: made.counts()["requests_open"] == 0)
    assert made.counts()["requests_cancelled"] == 1
    assert made.counts()["requests_failed"] == 0
    made.engine.release()
    assert json.loads(post(server, max_tokens=3).read())["choices"][0]["message"]["content"] == "xxx"


def test_A7_hang_up_behind_pipelined_requests(serving: Serving) -> None:
    made, server = serving("x" * 10_000, step_seconds=0.002, info=Bench.info(position_ceiling=4096))
    connection = connect(server)
    connection.sendall(request(chat(stream=True)) + request(chat()) * 3)
    assert eventually(lambda: made.engine.stats().tokens_generated > 10)
    connection.close()
    assert eventually(lambda: made.engine.stats().finished == {"cancelled": 1})
    assert made.engine.stats().requests_total == 1


@pytest.mark.parametrize("stream", [True, False])
def test_A7_hang_up_before_the_engine_has_the_request(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    made, server = serving("x" * 10_000, hold=("queue",))
    submit, entered, go = made.engine.submit, threading.Event(), threading.Event()

    def late(*args: Any, **kwargs: Any) -> Any:
        entered.set()
        assert go.wait(10)
        return submit(*args, **kwargs)

    monkeypatch.setattr(made.engine, "submit", late)
    connection = connect(server)
    connection.sendall(request(chat(stream=stream)))
    assert entered.wait(10)
    connection.close()
    time.sleep(0.05)  # the hang-up is noticed by now; if not, it comes to the same in the end
    go.set()
    assert eventually(lambda: made.engine.stats().finished == {"cancelled": 1})
    assert eventually(lambda: made.counts()["requests_cancelled"] == 1)


def test_must_4_eight_clients_one_hangs_up_one_is_too_long(serving: Serving) -> None:
    def script(asked: Any, index: int) -> list[int]:
        prompt = bytes(id for id in asked.prompt if id < 256)
        return list(prompt[::-1] * 3)

    made, server = serving(script, step_seconds=0.001, info=Bench.info(max_concurrency=4, position_ceiling=512))
    prompts = ["é" * (5 * i) + str(i) for i in range(8)]
    solo = [made.client.post("/v1/chat/completions", json=chat(messages=user(p))).get_json() for p in prompts]
    before = made.engine.stats()

    def run(index: int) -> str | None:
        if index == 3:
            connection = connect(server)
            connection.sendall(request(chat(messages=user(prompts[3]), stream=True)))
            connection.recv(300)
            connection.close()
            return None
        chunks = read_events(post(server, messages=user(prompts[index]), stream=True).read())
        text: str = assembled(chunks)[0]["content"]
        return text

    with ThreadPoolExecutor(9) as pool:
        texts = list(pool.map(run, range(8)))
        too_long = pool.submit(post, server, messages=user("x" * 600), stream=True).result()
    error = json.loads(too_long.read())["error"]
    assert (too_long.status, error["code"]) == (400, "context_length_exceeded")
    assert "512 tokens" in error["message"]
    assert "619 in the prompt" in error["message"]
    for index, text in enumerate(texts):
        if index != 3:
            assert text == solo[index]["choices"][0]["message"]["content"]
    assert eventually(lambda: made.engine.stats().finished.get("cancelled") == 1)
    after = made.engine.stats()
    assert after.requests_total - before.requests_total == 8
    assert (after.active, after.queued, after.pool_blocks_in_use) == (0, 0, 0)


def test_api_1_1_one_shot_answers_keep_the_connection(serving: Serving) -> None:
    _, server = serving("ok")
    connection = connect(server)
    for _ in range(3):
        connection.sendall(request(chat()))
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert json.loads(reply.read())["choices"][0]["message"]["content"] == "ok"
        assert reply.headers["Connection"] is None


def test_api_1_1_pipelined_requests_are_answered_in_order(serving: Serving) -> None:
    _, server = serving("x" * 100)
    connection = connect(server)
    bodies = [chat(max_tokens=n) for n in (30, 1, 20)]
    connection.sendall(b"".join(map(request, bodies)) + request({}, extra="Connection: close\r\n"))
    parts = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in parts] == [b"200", b"200", b"200", b"400"]
    answers = [json.loads(part.split(b"\r\n\r\n")[1]) for part in parts[:3]]
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [30, 1, 20]


def test_api_1_1_too_many_connections(serving: Serving) -> None:
    _, server = serving("ok", max_connections=2)
    held = [connect(server) for _ in range(2)]
    for connection in held:
        connection.sendall(request(chat()))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    refused = read_all(connect(server))
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert refused.endswith(b"\r\n\r\n")
    held.pop().close()
    assert eventually(lambda: post(server).status == 200)


POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (POST + "\r\n", 411),
        (POST + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501),
        (POST + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 501),
        (POST + "Transfer-Encoding: gzip\r\n\r\n", 501),
        (POST + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (POST + "Content-Length: -2\r\n\r\n{}", 400),
        (POST + "Content-Length: two\r\n\r\n{}", 400),
        (POST + "Content-Length: 2.0\r\n\r\n{}", 400),
        (POST + "Content-Length: " + "9" * 5000 + "\r\n\r\n{}", 400),
        (POST + "Content-Length: " + "9" * 25 + "\r\n\r\n{}", 413),
        (POST + "Content-Length: 1001\r\n\r\n", 413),
        ("GET /health HTTP/1.0\r\n\r\n", 400),
        ("GET /health\r\n\r\n", 400),
        ("GET /health HTTP/2.0\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nX: " + "y" * 16_384 + "\r\n\r\n", 431),
        ("GET /health HTTP/1.1\r\nX: " + "y" * 16_384, 431),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, str) else None,
)
def test_api_1_1_transport(serving: Serving, raw: str, status: int) -> None:
    made, server = serving("ok", max_body_bytes=1000)
    connection = connect(server)
    connection.sendall(raw.encode("latin-1"))
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert b"Connection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == ("request_too_large" if status == 413 else None)
    assert error["param"] is None
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    if status == 413:
        assert "max_body_bytes is 1000" in error["message"]
    assert made.counts()["rejects_bad"] == 0


def test_api_1_1_body_of_exactly_the_cap(serving: Serving) -> None:
    body = json.dumps(chat(padding="x" * 500))
    _, server = serving("ok", max_body_bytes=len(body))
    assert post(server, padding="x" * 500).status == 200
    assert post(server, padding="x" * 501).status == 413


def test_a_shutdown_tells_everybody(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    made, server = serving("x" * 1000, step_seconds=0.002, info=Bench.info(position_ceiling=2048))
    stream = post(server, stream=True)
    whole = ThreadPoolExecutor(1).submit(lambda: post(server))
    assert eventually(lambda: made.engine.stats().active == 2)
    shut, entered, go = made.engine.shutdown, threading.Event(), threading.Event()

    def slowly(timeout: float) -> None:
        entered.set()
        go.wait(timeout)
        shut(timeout)

    monkeypatch.setattr(made.engine, "shutdown", slowly)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert entered.wait(5)
    late = post(server)
    assert (late.status, json.loads(late.read())["error"]["code"]) == (503, "server_shutdown")
    go.set()
    *chunks, last = read_events(stream.read())
    assert last["error"]["code"] == "server_shutdown"
    assert chunks
    assert whole.result().status == 503
    stopping.join(5)
    assert not stopping.is_alive()
    with pytest.raises(ConnectionError):
        connect(server)


SERVE = """
import sys
import threading
sys.path.insert(0, sys.argv[1])
from dgpp.engine.scripted import ScriptedEngine
from dgpp.serve.server import HttpServer, headers_at_once
from dgpp.serve.settings import Settings
from tests.serve.support import Bench, ids
bench = Bench(ScriptedEngine(ids("x" * 200), step_seconds=0.05), Settings(port=0), None)
server = HttpServer(bench.service, bench.settings)
print(server.url, flush=True)
server.run()
print("ended, threads:", *(thread.name for thread in threading.enumerate()), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_order(number: signal.Signals) -> None:
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen([sys.executable, "-c", SERVE, root], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=True)))
        reply = connection.getresponse()
        reply.readline()
        os.kill(process.pid, number)
        assert read_events(b"data: {}\n\n" + reply.read().lstrip(b"\n"))[-1]["error"]["code"] == "server_shutdown"
        assert process.wait(10) == 0
        assert process.stdout.read() == "ended, threads: MainThread\n"


def test_the_address_is_loopback_and_taken_addresses_are_an_error(serving: Serving) -> None:
    made, server = serving("ok")
    assert server.url.startswith("http://127.0.0.1:")
    port = urlsplit(server.url).port
    with pytest.raises(OSError, match="in use"):
        HttpServer(made.service, Settings(port=port or 0))
    with pytest.raises(OSError, match="no host name"):
        HttpServer(made.service, Settings(host="nowhere.invalid"))


def test_metrics_answer_while_the_engine_is_stuck(serving: Serving) -> None:
    made, server = serving("ok", hold=("prefill",))
    waiting = post(server, stream=True)
    assert eventually(lambda: made.engine.stats().prefilling == 1)
    connection = connect(server)
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert json.loads(read_all(connection).partition(b"\r\n\r\n")[2])["scheduler"]["prefilling"] == 1
    made.engine.release()
    assert NAME in waiting.read().decode()


def test_a_client_that_left_before_the_headers_still_gets_its_body_closed() -> None:
    body = [b"event"]

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return body

    def gone(data: bytes) -> None:
        raise ClientDisconnected

    assert headers_at_once(application)({}, lambda *args: gone) is body
