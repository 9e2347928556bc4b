"""Clients on a socket, and a script that speaks only when the test allows it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from dgpp.serve.server import HttpServer
from tests.serve.support import Bench, chat

Serving = Callable[..., tuple[Bench, HttpServer]]


def connect(server: HttpServer) -> socket.socket:
    parts = urlsplit(server.url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.settimeout(10)
    return connection


def request(body: Any, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n{extra}\r\n"
    return head.encode() + data


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def post(server: HttpServer, **fields: Any) -> http.client.HTTPResponse:
    """A chat request on a connection of its own, with the headers of its answer read."""
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(**fields)))
    return connection.getresponse()


class OneByOne(Sequence[int]):
    """A script that gives a token only when the test allows one more."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.allowed = threading.Semaphore(0)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: Any) -> Any:
        assert self.allowed.acquire(timeout=10)
        return self.tokens[at]
