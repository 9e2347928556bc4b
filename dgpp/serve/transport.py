"""The parts of waitress that the HTTP contract needs otherwise: JSON errors, request forms, hang-ups told at once, and
clients that do not read dropped.

Replaced are the parser, task and channel classes, which waitress names in class attributes for that, the accept and the
loop. A channel keeps reading while its request runs (`channel_request_lookahead`), which is how a closed or
half-closed connection is seen before anything is written.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import BadRequest, Error, ServerNotImplemented

from dgpp.serve.errors import REQUEST_TOO_LARGE, ErrorKind, error_body
from dgpp.serve.sse import encode_json

logger = logging.getLogger(__name__)

ON_DISCONNECT = "dgpp.on_disconnect"
"""The WSGI environment's key of a function that takes what to call when the client has hung up."""

_REFUSED_CONNECTION = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
)
_SWEEP_SECONDS = 0.25
"""How often the loop looks for connections that ought to be dropped."""


class LengthRequired(Error):
    """A POST that does not say how long its body is."""

    code = 411
    reason = "Length Required"


class Parser(HTTPRequestParser):
    """Reads requests; refuses what the contract leaves out: HTTP/1.0, chunked bodies, a POST without a length."""

    _judged = False

    def __init__(self, adj: Any) -> None:
        super().__init__(adj)
        self.begun = time.monotonic()

    def received(self, data: bytes) -> int:
        """Takes bytes, returns how many belong to this request, and sets `error` when it is refused."""
        try:
            consumed: int = super().received(data)
        except ValueError:
            # A Content-Length with more digits than Python converts.
            self.error, self.completed = BadRequest("Content-Length is invalid"), True
            return len(data)
        if self.headers_finished and not self._judged and not self.empty:
            self._judged = True
            if self.error is None:
                self.error = self._refusal()
                self.completed = self.completed or self.error is not None
            if self.completed:
                self.expect_continue = False  # there is no body, or none is wanted: waitress would wait for it
        return consumed

    def _refusal(self) -> Error | None:
        if self.version != "1.1":
            return BadRequest("Only HTTP/1.1 is spoken here")
        if self.chunked:
            return ServerNotImplemented("Chunked request bodies are not supported; send Content-Length")
        if self.command == "POST" and "CONTENT_LENGTH" not in self.headers:
            return LengthRequired("Content-Length is required")
        return None


class TransportErrorTask(ErrorTask):
    """Answers a request that never reached the application, in the contract's error shape, and closes."""

    def execute(self) -> None:
        """Writes the response."""
        error = self.request.error
        too_large = error.code == REQUEST_TOO_LARGE.status
        message = f"max_body_bytes is {self.channel.adj.max_request_body_size - 1}" if too_large else error.body
        kind = REQUEST_TOO_LARGE if too_large else ErrorKind(error.code)
        body = encode_json(error_body(kind, f"{error.reason}: {message}."))
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Task(WSGITask):
    """Runs the application, with the hang-up hook in its environment."""

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment."""
        environ: dict[str, Any] = super().get_environment()
        environ[ON_DISCONNECT] = self.channel.on_disconnect
        return environ

    def set_close_on_finish(self) -> None:
        """Closes the connection behind this response, unless the only reason is that its length was not known: the
        last chunk ends a chunked response as well as a close does."""
        if not self.chunked_response:
            super().set_close_on_finish()


class Channel(HTTPChannel):
    """A connection that tells its running request when the client is gone."""

    parser_class = Parser
    task_class = Task
    error_task_class = TransportErrorTask

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._hook_lock = threading.Lock()
        self._hook: Callable[[], None] | None = None
        self._taken = time.monotonic()  # when the client last took a byte, or bytes began to wait for it
        super().__init__(*args, **kwargs)

    def on_disconnect(self, hook: Callable[[], None]) -> None:
        """Calls `hook` once when the connection closes while the present request runs, or now if it has. The call
        comes from the server's loop thread, so the hook must not block."""
        with self._hook_lock:
            if self.connected:
                self._hook = hook
                return
        hook()

    def write_soon(self, data: Any) -> int:
        """Sends `data` or lets it wait for the client; waits itself while too much does. Raises ClientDisconnected."""
        if not self.total_outbufs_len:
            self._taken = time.monotonic()
        written: int = super().write_soon(data)
        return written

    def _flush_some(self, do_close: bool = True) -> bool:
        sent: bool = super()._flush_some(do_close=do_close)
        if sent:
            self._taken = time.monotonic()
        return sent

    def is_stalled(self, now: float, write_timeout: float, header_timeout: float) -> bool:
        """Whether bytes have waited for the client, or the rest of a header has not come, for too long."""
        if self.total_outbufs_len:
            return now - self._taken > write_timeout
        coming = self.request
        return coming is not None and not coming.headers_finished and now - coming.begun > header_timeout

    def handle_close(self) -> None:
        """Closes the socket and tells the request."""
        super().handle_close()
        with self._hook_lock:
            hook, self._hook = self._hook, None
        if hook is not None:
            hook()

    def service(self) -> None:
        """Serves one request."""
        super().service()
        with self._hook_lock:
            self._hook = None


class Listener(TcpWSGIServer):
    """The listening socket and its loop. Beyond `max_connections` a connection gets a bare 503; one whose client takes
    no byte for `write_timeout` seconds while bytes wait for it is dropped."""

    channel_class = Channel
    max_connections = 64
    write_timeout = 60.0
    stopped = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._waking = threading.Lock()
        self._ended = False
        super().__init__(*args, **kwargs)

    def handle_accept(self) -> None:
        """Takes a connection, or refuses it."""
        if len(self.active_channels) < self.max_connections:
            super().handle_accept()
            return
        accepted = self.accept()
        if accepted is not None:
            connection, _ = accepted
            connection.setblocking(False)
            with contextlib.closing(connection), contextlib.suppress(OSError):  # it may have left by itself
                connection.send(_REFUSED_CONNECTION)

    def run(self) -> None:
        """Serves until `stop`."""
        next_sweep = 0.0
        while not self.stopped:
            wasyncore.loop(timeout=self.adj.asyncore_loop_timeout, use_poll=True, map=self._map, count=1)
            now = time.monotonic()
            if now >= next_sweep:
                next_sweep = now + _SWEEP_SECONDS
                self._drop_stalled(now)
        self.task_dispatcher.shutdown(timeout=1)
        with self._waking:
            self._ended = True
            self.trigger.close()
        wasyncore.close_all(self._map)

    def pull_trigger(self) -> None:
        """Wakes the loop, if it runs: the descriptors of one that has ended may be someone else's."""
        with self._waking:
            if not self._ended:
                super().pull_trigger()

    def _drop_stalled(self, now: float) -> None:
        for channel in list(self.active_channels.values()):
            if channel.is_stalled(now, self.write_timeout, self.adj.channel_timeout):
                logger.info("a connection is dropped: its client takes or sends nothing")
                # A reset: an orderly close would leave the kernel waiting for the client to take what is left.
                channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                channel.handle_close()

    def stop(self) -> None:
        """Ends `run`; from any thread."""
        self.stopped = True
        self.pull_trigger()

    def flushed(self) -> bool:
        """Whether no connection has a request running or bytes left to send."""
        channels = list(self.active_channels.values())
        return not any(channel.requests or channel.total_outbufs_len for channel in channels)
