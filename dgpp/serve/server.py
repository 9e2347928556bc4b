"""The production server: waitress with a thread for every running request, ended in an orderly way.

Every event of a stream is handed to the socket before the next one is awaited. On a stop, new requests get 503
`server_shutdown` at once; running ones may go on for `drain_seconds` and then get their error event (an answer in one
piece a 503); the process waits until these answers have left.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import ClientDisconnected

from dgpp.serve.app import create_app
from dgpp.serve.metrics.stats_log import StatsLog
from dgpp.serve.service import Service
from dgpp.serve.settings import Settings
from dgpp.serve.transport import Listener
from dgpp.serve.workers import Workers

MAX_HEADER_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 32 * 1024
"""What the kernel is asked to keep for a client that does not read (Linux takes twice that). Left to itself it would
take megabytes, and it would be long before a stream is seen to stall. It tells of room again when a third is free, so a
client has to take some 20 KB within `write_timeout`."""
LOOKAHEAD = 8
"""Pipelined requests read ahead of the running one. Reading on is what shows that a client has gone."""

StartResponse = Callable[..., Callable[[bytes], object]]


class HttpServer:
    """A bound socket, serving between `start` (or `run`) and `stop`. Raises OSError when it cannot be bound."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        try:
            adjustments = self._adjustments(settings)
        except ValueError:
            raise OSError(f"{settings.host!r} is no host name or address that can be resolved here") from None
        self._closing = threading.Event()
        application = headers_at_once(create_app(service, settings, self._closing))
        workers = Workers(settings.max_connections)
        self._listener = Listener(application, dispatcher=workers, adj=adjustments)
        self._listener.max_connections = settings.max_connections
        self._listener.write_timeout = settings.write_timeout
        self._stats_log: StatsLog | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Lock()

    @staticmethod
    def _adjustments(settings: Settings) -> Adjustments:
        adjustments = Adjustments(
            host=settings.host,
            port=settings.port,
            ident="dgpp",
            channel_request_lookahead=LOOKAHEAD,
            channel_timeout=settings.idle_timeout,
            cleanup_interval=1,
            outbuf_high_watermark=settings.max_unsent_bytes,
            max_request_header_size=MAX_HEADER_BYTES,
            max_request_body_size=settings.max_body_bytes + 1,  # waitress refuses from this size on
            connection_limit=2**31,  # Listener.max_connections answers instead of leaving clients in the backlog
        )
        adjustments.socket_options = [
            *Adjustments.socket_options,
            (socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        ]
        return adjustments

    @property
    def url(self) -> str:
        """Where the server listens."""
        host = self._listener.effective_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._listener.effective_port}"

    def start(self) -> None:
        """Serves in a thread of its own."""
        self._start_stats_log()
        self._thread = threading.Thread(target=self._listener.run, name="http-server", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Serves in the main thread until SIGTERM or SIGINT; a second signal ends the process as it usually would."""
        signals = (signal.SIGTERM, signal.SIGINT)
        previous = {number: signal.getsignal(number) for number in signals}
        stopper = threading.Thread(target=self.stop, name="http-stop", daemon=True)

        def on_signal(number: int, frame: object) -> None:
            for each in signals:
                signal.signal(each, previous[each])
            stopper.start()

        for number in signals:
            signal.signal(number, on_signal)
        self._start_stats_log()
        try:
            self._listener.run()
        finally:
            for number in signals:
                signal.signal(number, previous[number])
            if stopper.ident is not None:
                stopper.join()

    def stop(self) -> None:
        """Lets running answers end for `drain_seconds`, ends the engine, lets what is still open say so, and stops
        listening. Returns when that is done."""
        with self._stopping:
            if self._listener.stopped:
                return
            self._closing.set()
            drained = time.monotonic() + self._settings.drain_seconds
            while self._service.telemetry.open_requests() and time.monotonic() < drained:
                time.sleep(0.01)
            deadline = time.monotonic() + self._settings.shutdown_timeout
            self._service.shutdown(self._settings.shutdown_timeout)
            while not self._listener.flushed() and time.monotonic() < deadline:
                time.sleep(0.01)
            self._listener.stop()
            if self._stats_log is not None:
                self._stats_log.stop()
            if self._thread is not None:
                self._thread.join()

    def _start_stats_log(self) -> None:
        if self._settings.stats_interval:
            service = self._service
            self._stats_log = StatsLog(service.engine.stats, service.telemetry, self._settings.stats_interval)


def headers_at_once(application: Any) -> Any:
    """`application`, with the status and headers of a stream sent when it begins and not with its first event."""

    def wrapped(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            write = start_response(status, headers, exc_info)
            if any(name.lower() == "content-type" and value == "text/event-stream" for name, value in headers):
                # A client that has left already is noticed at the first event; the body must be returned to be closed.
                with contextlib.suppress(ClientDisconnected):
                    write(b"")
            return write

        body: Iterable[bytes] = application(environ, start)
        return body

    return wrapped
