"""Clients that read slowly or never: who waits for whom, and when one is dropped."""

from __future__ import annotations

import http.client
import socket
import time
from urllib.parse import urlsplit

import pytest

from dgpp.serve.server import HttpServer
from tests.serve.support import Bench, chat, eventually, read_events
from tests.serve.wire import Serving, post, read_all, request

LONG = Bench.info(position_ceiling=100_000, pool_tokens=400_000)


def small_window(server: HttpServer) -> socket.socket:
    """A connection whose client buffers next to nothing."""
    parts = urlsplit(server.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    connection.settimeout(10)
    return connection


def test_load_a_client_that_never_reads_is_dropped(serving: Serving) -> None:
    made, server = serving("x" * 50_000, info=LONG, write_timeout=0.5, max_unsent_bytes=20_000)
    connection = small_window(server)
    connection.sendall(request(chat(stream=True)))
    assert eventually(lambda: server._listener.active_channels != {})
    (channel,) = server._listener.active_channels.values()
    assert eventually(lambda: channel.total_outbufs_len > 20_000)
    stalled = time.monotonic()
    assert eventually(lambda: server._listener.active_channels == {})
    assert 0.2 < time.monotonic() - stalled < 2
    assert channel.total_outbufs_len == 0
    assert eventually(lambda: made.counts()["requests_open"] == 0)
    assert made.counts()["requests_cancelled"] == 1
    assert eventually(lambda: made.engine.stats().pool_blocks_in_use == 0)
    with pytest.raises(ConnectionResetError):  # no orderly end behind what the kernel had kept
        read_all(connection)


def test_load_what_waits_for_a_client_is_bounded(serving: Serving) -> None:
    _, server = serving("x" * 4000, info=LONG, write_timeout=30, max_unsent_bytes=10_000)
    connection = small_window(server)
    connection.sendall(request(chat(stream=True)))
    assert eventually(lambda: server._listener.active_channels != {})
    (channel,) = server._listener.active_channels.values()
    assert eventually(lambda: channel.total_outbufs_len > 10_000)
    time.sleep(0.2)
    assert channel.total_outbufs_len < 10_000 + 1000  # one event more at most
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    assert len(read_events(reply.read())) == 4000 + 2  # nothing is lost once it reads


def test_load_a_slow_reader_is_not_dropped_and_delays_nobody(serving: Serving) -> None:
    _, server = serving("x" * 6000, info=LONG, write_timeout=1, max_unsent_bytes=10_000)
    connection = small_window(server)
    connection.sendall(request(chat(stream=True)))
    assert eventually(lambda: any(c.total_outbufs_len > 10_000 for c in server._listener.active_channels.values()))
    started = time.monotonic()
    taken = b""
    while time.monotonic() - started < 2.5:  # far longer than the timeout, a little at a time
        taken += connection.recv(4096)
        time.sleep(0.02)
        if len(taken) < 20_000:
            beside = time.monotonic()
            assert post(server, stream=True, max_tokens=20).read()
            assert time.monotonic() - beside < 1
    while not taken.endswith(b"0\r\n\r\n") and (data := connection.recv(65536)):
        taken += data
    assert taken.count(b"data: ") == 6000 + 3


def test_load_a_silent_stream_is_not_a_stalled_one(serving: Serving) -> None:
    made, server = serving("ok", hold=("prefill",), write_timeout=0.3)
    reply = post(server, stream=True, sse_ping_interval=-1)
    time.sleep(1)  # nothing waits for the client: there is nothing to take
    made.engine.release()
    assert read_events(reply.read())
