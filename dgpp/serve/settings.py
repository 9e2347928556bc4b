"""What an operator can set about the HTTP side; the defaults are safe on a shared machine."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Settings:
    """Listener, limits and service defaults. Times are in seconds.

    `max_connections` counts open sockets, idle ones included; a socket costs a thread only while a request runs on it.
    The next connection gets a bare 503. Up to `max_unsent_bytes` wait for a client that reads slowly, then its own
    answer does. Where bytes wait and none could be handed on for `write_timeout`, the client is dropped: the connection
    is closed and its request cancelled.
    """

    host: str = "127.0.0.1"  # loopback: other machines reach the server only when asked for
    port: int = 18080  # 0: any free port
    api_key: str | None = None  # when set, every route but /health and the page wants it
    cors_origins: tuple[str, ...] = ()  # pages that may read answers, as scheme://host[:port]; "*": all
    max_body_bytes: int = 256 * 1024 * 1024  # inclusive
    max_connections: int = 512
    max_unsent_bytes: int = 1024 * 1024
    idle_timeout: int = 120  # a connection without a request, or with half a header, is closed after this
    write_timeout: float = 60.0
    overload_status: int = 503  # or 429: what a client gets when the queue is full
    sse_ping_interval: int = 30  # seconds of silence before a keep-alive comment; -1: none
    default_max_tokens: int | None = None  # None: what the context leaves
    reasoning_in_content: bool = False  # the thinking is part of the content, up to its closing marker
    files_directory: str | None = None  # where uploaded files are kept; None: a temporary directory, removed at exit
    max_file_bytes: int = 50 * 1024 * 1024  # of one file, decoded or uploaded; inclusive, as all that follow
    max_file_request_bytes: int = 50 * 1024 * 1024  # of all files of a request, decoded
    max_file_text_bytes: int = 128 * 1024 * 1024  # of the text taken from the files of a request
    max_file_storage_bytes: int = 1024 * 1024 * 1024  # of all kept files
    pdf_timeout: float = 120.0  # until taking the text out of one PDF is given up
    file_workers: int = 4  # files that are read at once
    drain_seconds: float = 0.0  # after a stop is asked for: how long running answers may go on before they are cut
    shutdown_timeout: float = 30.0  # until the connections of cut answers are closed
    stats_interval: float = 10.0  # between the throughput lines of a busy server's log; 0: none

    def __post_init__(self) -> None:
        for name, low in (
            ("port", 0),
            ("max_body_bytes", 1),
            ("max_connections", 1),
            ("max_unsent_bytes", 1),
            ("idle_timeout", 1),
            ("max_file_bytes", 1),
            ("max_file_request_bytes", 1),
            ("max_file_text_bytes", 1),
            ("max_file_storage_bytes", 1),
            ("file_workers", 1),
            ("drain_seconds", 0),
            ("stats_interval", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, not {getattr(self, name)}")
        for name in ("write_timeout", "pdf_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.file_workers > 256:
            raise ValueError(f"file_workers must be at most 256, not {self.file_workers}")
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, not {self.port}")
        if self.overload_status not in (429, 503):
            raise ValueError(f"overload_status must be 503 or 429, not {self.overload_status}")
        if self.sse_ping_interval != -1 and self.sse_ping_interval < 1:
            raise ValueError(f"sse_ping_interval must be -1 or at least 1, not {self.sse_ping_interval}")
        if self.default_max_tokens is not None and self.default_max_tokens < 1:
            raise ValueError(f"default_max_tokens must be at least 1, not {self.default_max_tokens}")
        if self.api_key == "":
            raise ValueError("api_key must not be empty; leave it out for a server without a key")
        for origin in self.cors_origins:
            if not _is_origin(origin):
                raise ValueError(f"cors_origins must be * or look like https://host[:port], not {origin!r}")


def _is_origin(text: str) -> bool:
    """Whether a browser could send `text` as an origin, or it is the `*` that stands for all."""
    if text == "*":
        return True
    try:
        parts = urlsplit(text)
        return bool(parts.scheme and parts.hostname) and text == f"{parts.scheme}://{parts.netloc}" and "@" not in text
    except ValueError:
        return False
