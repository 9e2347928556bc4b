"""What the HTTP side adds to each event of a stream, with many streams and clients of every kind on two cores.

    python -m bench.serve_load --record

A server over the scripted engine and one client that holds all connections, each a process, share two cores. The engine
notes when it hands on a token and the client when the event has arrived; the difference is what the server, the sockets
and the client itself add. Beside the streams: idle keep-alive connections, a client that reads slowly, one that never
reads, and requests whose schemas are built to be slow.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import select
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.serve_load_server import STEP_SECONDS, WRITE_TIMEOUT, Server, served
from dgpp.ops.records import write_record

CORES = 2
STREAMS, IDLE = 64, 200
TOKENS = 200
EVENT = b'"content":"x"'
HOSTILE: tuple[dict[str, Any], ...] = (
    {"type": "string", "pattern": "^(a|a)*$"},
    {"type": "string", "pattern": "a{100}{100}{100}"},
    {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"},
    {"type": "array", "items": {"enum": [f"value {i}" for i in range(20_000)]}},
    {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^[a-z]{{{i}}}$"} for i in range(400)}},
    # Twelve levels of choices between two objects.
    {
        "$defs": {
            "l0": {"type": "string"},
            **{
                f"l{i}": {
                    "anyOf": [
                        {"type": "object", "properties": {key: {"$ref": f"#/$defs/l{i - 1}"}}, "required": [key]}
                        for key in ("a", "b", "c")
                    ]
                }
                for i in range(1, 13)
            },
        },
        "$ref": "#/$defs/l12",
    },
)
"""Schemas that a careless server takes long over: cases J5."""


def request(name: str, tokens: int, **fields: Any) -> bytes:
    """A streamed chat request whose prompt names it."""
    messages = [{"role": "user", "content": name}]
    body = {"model": "scripted/tiny", "messages": messages, "max_tokens": tokens, "stream": True, "temperature": 0}
    data = json.dumps({**body, **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@dataclass
class Stream:
    """A connection with one running stream."""

    name: str
    connection: socket.socket
    arrived: list[float] = field(default_factory=list)
    rest: bytes = b""

    def read(self) -> bool:
        """Takes what is there; returns whether the stream goes on."""
        data = self.connection.recv(65536)
        now = time.monotonic()
        data = self.rest + data
        self.arrived += [now] * data.count(EVENT)
        cut = data.rfind(b"\n") + 1
        self.rest = data[cut:]
        return b"[DONE]" not in data and bool(data)


def connect(server: Server, receive_buffer: int | None = None) -> socket.socket:
    """A connection; with a small `receive_buffer` the client's kernel takes next to nothing for it."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(server.address)
    return connection


def idle_connections(server: Server, count: int) -> list[socket.socket]:
    """Connections that have had one answer and stay open."""
    kept = []
    for _ in range(count):
        connection = connect(server)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(4096)
        kept.append(connection)
    return kept


def read_streams(server: Server, count: int, tokens: int) -> list[Stream]:
    """`count` streams at once, read to their ends."""
    selector = selectors.DefaultSelector()
    streams = [Stream(f"stream {index}", connect(server)) for index in range(count)]
    for stream in streams:
        stream.connection.sendall(request(stream.name, tokens))
        selector.register(stream.connection, selectors.EVENT_READ, stream)
    running = count
    while running:
        for key, _ in selector.select(60):
            if not key.data.read():
                selector.unregister(key.fileobj)
                running -= 1
    return streams


def slow_reader(server: Server, done: threading.Event) -> None:
    """Reads 8 KiB ten times a second."""
    with connect(server, 4096) as connection:
        connection.sendall(request("slow", 100_000))
        while not done.wait(0.1) and connection.recv(8192):
            pass


def slow_requests(server: Server, kind: str, done: threading.Event, taken: list[float]) -> None:
    """Sends requests that are slow to prepare, one after the other, and notes how long each answer took to begin."""
    for index in itertools.count():
        if done.is_set():
            return
        fields: dict[str, Any] = {}
        if kind == "schemas":
            schema = HOSTILE[index % len(HOSTILE)]
            form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
            fields = {"response_format": form}
        name = f"slow {index}" if kind == "templates" else f"schema {index}"
        with connect(server) as connection:
            started = time.monotonic()
            connection.sendall(request(name, 5, **fields))
            connection.recv(4096)
            taken.append(time.monotonic() - started)


# --- the measurement --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Who is there beside whom."""

    name: str
    streams: int
    idle: int = 0
    slow: bool = False
    never: bool = False
    prepared: str | None = None  # "schemas" or "templates": requests that are slow to prepare


CASES = (
    Case("1 stream", 1),
    Case(f"{STREAMS} streams", STREAMS),
    Case(f"{STREAMS} streams, {IDLE} idle", STREAMS, IDLE),
    Case(f"{STREAMS} streams, {IDLE} idle, slow reader, never reads", STREAMS, IDLE, slow=True, never=True),
    Case(f"{STREAMS} streams, slow schemas", STREAMS, prepared="schemas"),
    Case(f"{STREAMS} streams, slow templates", STREAMS, prepared="templates"),
)


def measured(case: Case, tokens: int) -> dict[str, Any]:
    """The record's row of one case."""
    with served() as server, ExitStack() as stack:
        row: dict[str, Any] = {"name": case.name}
        for connection in idle_connections(server, 1):  # what the first request makes is not an idle connection's
            connection.close()
        before = server.resident_bytes()
        kept = idle_connections(server, case.idle)
        if case.idle:
            row["idle_connection_bytes"] = max(0, server.resident_bytes() - before) // case.idle
        done = threading.Event()
        taken: list[float] = []
        pool = stack.enter_context(ThreadPoolExecutor(4))
        stack.callback(done.set)
        if case.slow:
            pool.submit(slow_reader, server, done)
        dropped = pool.submit(never_reads, server) if case.never else None
        if case.prepared is not None:
            pool.submit(slow_requests, server, case.prepared, done, taken)
        resident = pool.submit(resident_while_streaming, server, tokens)
        quiet = server.resident_bytes()
        streams = read_streams(server, case.streams, tokens)
        row |= added(server.times(), streams)
        if case.streams > 1 and not (case.slow or case.prepared):
            row["stream_bytes"] = max(0, resident.result() - quiet) // case.streams
        if dropped is not None:
            row["dropped_seconds"] = dropped.result()
        if taken:
            row["prepared_count"], row["prepared_max_seconds"] = len(taken), max(taken)
        done.set()
        for connection in [*kept, *(stream.connection for stream in streams)]:
            connection.close()
        return row


def resident_while_streaming(server: Server, tokens: int) -> int:
    """The server's resident memory when the streams are about half done."""
    time.sleep(tokens * STEP_SECONDS / 2)
    return server.resident_bytes()


def never_reads(server: Server) -> float:
    """Seconds until the server drops a client that never reads, counted from its request."""
    with connect(server, 4096) as connection:
        started = time.monotonic()
        connection.sendall(request("never", 100_000, logprobs=True, top_logprobs=20))
        watched = select.poll()
        watched.register(connection, select.POLLRDHUP)
        if not watched.poll(120_000):
            raise RuntimeError("a client that never reads was not dropped")
        return time.monotonic() - started


def added(times: dict[str, list[float]], streams: Sequence[Stream]) -> dict[str, float]:
    """What was added to the events of all streams, from the engine to the client: quantiles in seconds."""
    delays: list[float] = []
    for stream in streams:
        sent = times[stream.name]
        if len(sent) != len(stream.arrived):
            raise RuntimeError(f"{stream.name} got {len(stream.arrived)} of {len(sent)} events")
        delays += [there - then for then, there in zip(sent, stream.arrived, strict=True)]
    delays.sort()
    return {
        "events_count": len(delays),
        "p50_seconds": quantile(delays, 0.5),
        "p99_seconds": quantile(delays, 0.99),
        "max_seconds": delays[-1],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the ordered ones do not exceed."""
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.serve_load", description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=TOKENS, help="events of a stream (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/serve_load.json")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    load = [os.getloadavg()[0]]
    rows = []
    for case in CASES:
        rows.append(measured(case, options.tokens))
        print(json.dumps(rows[-1]), flush=True)
    if options.record:
        load.append(os.getloadavg()[0])
        extra = {"cores": CORES, "step_seconds": STEP_SECONDS, "tokens": options.tokens, "write_timeout": WRITE_TIMEOUT}
        extra["load_average"] = f"{load[0]:.1f} at the start, {load[1]:.1f} at the end"
        print(write_record("serve_load", rows, extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
