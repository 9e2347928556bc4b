"""Forms of requests on the wire: lengths, HEAD, a stream on a connection that lives on, and headers that never end."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from tests.serve.support import Bench, chat, eventually, read_events
from tests.serve.wire import Serving, connect, read_all, request

POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
REFUSED_LENGTHS = {
    "Content-Length:": 400,
    "Content-Length: ": 400,
    "Content-Length: +2": 400,
    "Content-Length: -0": 400,
    "Content-Length: 0x2": 400,
    "Content-Length: 2e0": 400,
    "Content-Length: 2 2": 400,
    "Content-Length: 2, 2": 400,
    "Content-Length: 2\r\nContent-Length: 2": 400,
    "Content-Length: 2\r\nContent-Length: 3": 400,
    "Content-Length: \u00b2": 400,
    "Content-Length : 2": 400,
    "Content-Length: 2\x00": 400,
    "Content-Length: NaN": 400,
    "Content-Length: 18446744073709551618": 413,
    "Content-Length: -18446744073709551618": 400,
    "Content_Length: 2": 411,
    "X-Content-Length: 2": 411,
    "Transfer-Encoding: chunked, identity": 501,
    "Transfer-Encoding: \x0bchunked\r\nContent-Length: 2": 400,
}


@pytest.mark.parametrize("header", REFUSED_LENGTHS)
def test_api_1_1_a_length_that_is_none_is_refused_at_once(serving: Serving, header: str) -> None:
    made, server = serving("ok", max_body_bytes=1000)
    connection = connect(server)
    started = time.monotonic()
    connection.sendall(f"{POST}{header}\r\n\r\n{{}}".encode("latin-1"))
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == REFUSED_LENGTHS[header]
    assert json.loads(body)["error"]["param"] is None
    assert time.monotonic() - started < 2
    assert made.engine.requests == []


@pytest.mark.parametrize("header", ["Content-Length: 0", "content-length:0", "Content-Length: 000"])
def test_api_1_1_an_empty_body_reaches_the_application(serving: Serving, header: str) -> None:
    _, server = serving("ok")
    connection = connect(server)
    connection.sendall(f"{POST}{header}\r\n\r\n".encode())
    assert json.loads(read_all(connection).partition(b"\r\n\r\n")[2])["error"]["param"] == "body"


def test_api_1_1_a_large_body_is_refused_before_it_is_sent(serving: Serving) -> None:
    _, server = serving("ok", max_body_bytes=1000)
    connection = connect(server)
    connection.sendall(f"{POST}Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n".encode())
    assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_api_1_1_a_client_may_ask_before_it_sends_its_body(serving: Serving) -> None:
    _, server = serving("ok")
    head, _, body = request(chat(), extra="Expect: 100-continue\r\nConnection: close\r\n").partition(b"\r\n\r\n")
    connection = connect(server)
    connection.sendall(head + b"\r\n\r\n")
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(body)
    assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_api_1_1_asking_for_nothing_is_not_waited_for(serving: Serving) -> None:
    _, server = serving("ok")
    connection = connect(server)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
    assert read_all(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("path", "status"), [("/health", 200), ("/v1/models", 200), ("/v1/chat/completions", 405), ("/nothing", 404)]
)
def test_api_1_head_is_get_without_a_body(serving: Serving, path: str, status: int) -> None:
    _, server = serving("ok")
    connection = connect(server)
    connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 2)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    first, second, third, *rest = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert not rest
    assert first.startswith(str(status).encode())
    assert first.endswith(b"\r\n\r\n")
    assert second.split(b"\r\n")[0] == first.split(b"\r\n")[0]
    assert not third.endswith(b"\r\n\r\n")


def test_api_1_1_a_stream_keeps_its_connection(serving: Serving) -> None:
    _, server = serving("ok")
    connection = connect(server)
    for _ in range(3):
        connection.sendall(request(chat(stream=True)))
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert reply.headers["Connection"] is None
        assert read_events(reply.read())
    connection.sendall(request(chat(stream=True), extra="Connection: close\r\n"))
    assert b"\r\nConnection: close\r\n" in read_all(connection)


def test_api_1_1_a_header_that_never_ends_does_not_hold_a_connection(serving: Serving) -> None:
    _, server = serving("ok", idle_timeout=1)
    connection = connect(server)
    connection.sendall(b"GET /health HTTP/1.1\r\n")
    started = time.monotonic()

    def closed() -> bool:
        try:
            connection.sendall(b"X: y\r\n")  # it keeps sending, so the connection is never idle
        except ConnectionError:
            return True
        return False

    assert eventually(closed, 4)
    assert time.monotonic() - started > 0.9


def test_api_1_1_idle_connections_are_closed(serving: Serving) -> None:
    _, server = serving("ok", idle_timeout=1)
    connection = connect(server)
    connection.sendall(request(chat()))
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    assert reply.read()
    assert connection.recv(100) == b""


def test_api_1_1_threads_are_made_for_requests_and_not_for_connections(serving: Serving) -> None:
    made, server = serving("ok", hold=("queue",), info=Bench.info(queue_limit=0))
    workers = server._listener.task_dispatcher
    idle = [connect(server) for _ in range(30)]
    assert eventually(lambda: len(server._listener.active_channels) == 30)
    assert len(workers.threads) == 0
    for connection in idle[:12]:
        connection.sendall(request(chat(stream=True)))
        assert connection.recv(15) == b"HTTP/1.1 200 OK"  # none waits for a thread
    assert 12 <= len(workers.threads) <= 14
    made.engine.release()


def test_waking_a_loop_that_has_ended_touches_no_descriptor(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end by itself between being told to and being woken; by then its descriptors may be someone else's."""
    _, server = serving("ok")
    listener, thread = server._listener, server._thread
    assert thread is not None
    listener.stop()
    thread.join(10)
    assert not thread.is_alive()
    woken = []
    monkeypatch.setattr(listener.trigger, "pull_trigger", lambda *thunk: woken.append(thunk))
    listener.stop()
    listener.pull_trigger()
    assert woken == []
