"""What an operator can set about the HTTP side; the defaults are safe on a shared machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Listener, limits and service defaults. Times are in seconds."""

    host: str = "127.0.0.1"  # loopback: other machines reach the server only when asked for
    port: int = 18080  # 0: any free port
    api_key: str | None = None  # when set, every route but /health wants it as a Bearer token
    max_body_bytes: int = 256 * 1024 * 1024  # inclusive
    max_connections: int = 64  # open sockets, idle ones included; also the number of worker threads
    idle_timeout: int = 120  # a connection without a request is closed after this
    sse_ping_interval: int = 30  # seconds of silence before a keep-alive comment; -1: none
    default_max_tokens: int | None = None  # None: what the context leaves
    reasoning_in_content: bool = False  # the thinking is part of the content, up to its closing marker
    files_directory: str | None = None  # where uploaded files are kept; None: a temporary one, removed at the end
    max_file_bytes: int = 50 * 1024 * 1024  # one file, inclusive
    max_file_request_bytes: int = 50 * 1024 * 1024  # the files of one request
    max_file_text_bytes: int = 128 * 1024 * 1024  # the text taken from the files of one request
    max_file_storage_bytes: int = 1024 * 1024 * 1024  # all files that are kept
    pdf_timeout: float = 120.0  # until reading the text of one PDF is given up
    file_workers: int = 4  # requests whose files are read at once
    shutdown_timeout: float = 30.0  # until open responses are cut

    def __post_init__(self) -> None:
        counts = ("max_body_bytes", "max_connections", "idle_timeout", "file_workers")
        bytes_of_files = ("max_file_bytes", "max_file_request_bytes", "max_file_text_bytes", "max_file_storage_bytes")
        for name, low in (("port", 0), *((name, 1) for name in (*counts, *bytes_of_files))):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, not {getattr(self, name)}")
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, not {self.port}")
        if self.sse_ping_interval != -1 and self.sse_ping_interval < 1:
            raise ValueError(f"sse_ping_interval must be -1 or at least 1, not {self.sse_ping_interval}")
        if self.default_max_tokens is not None and self.default_max_tokens < 1:
            raise ValueError(f"default_max_tokens must be at least 1, not {self.default_max_tokens}")
        if not self.pdf_timeout > 0:
            raise ValueError(f"pdf_timeout must be above 0, not {self.pdf_timeout}")
        if self.file_workers > 256:
            raise ValueError(f"file_workers must be at most 256, not {self.file_workers}")
        if self.api_key == "":
            raise ValueError("api_key must not be empty; leave it out for a server without a key")
