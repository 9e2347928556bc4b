"""The settings of the HTTP side as flags, from one list."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer

from dgpp.cli.flag_group import takes_group
from dgpp.serve.settings import Settings

HELP = {
    "host": "Address to listen on; the default only serves this machine.",
    "port": "Port to listen on; 0 picks a free one.",
    "api_key": "Require this key on every request but those of /health and the page.",
    "cors_origins": "Web page that may read answers, as https://host; * for all; may be given several times.",
    "max_body_bytes": "Largest request body.",
    "max_connections": "Open connections, idle ones included.",
    "max_unsent_bytes": "Bytes that wait for a slow client before its answer does.",
    "idle_timeout": "Seconds until a connection without a request is closed.",
    "write_timeout": "Seconds until a client that takes nothing is dropped.",
    "overload_status": "Status when the queue is full: 503 or 429.",
    "sse_ping_interval": "Seconds of silence before a keep-alive; -1: none. A request's own wish comes first.",
    "default_max_tokens": "Answer tokens when a request names none; else what the context leaves.",
    "reasoning_in_content": "Send the thinking as part of the content, up to its closing marker.",
    "files_directory": "Where uploaded files are kept; a temporary directory without it.",
    "max_file_bytes": "Largest file.",
    "max_file_request_bytes": "All files of one request, decoded.",
    "max_file_text_bytes": "Text taken from the files of one request.",
    "max_file_storage_bytes": "All kept files.",
    "pdf_timeout": "Seconds until taking the text out of one PDF is given up.",
    "file_workers": "Files that are read at once.",
    "drain_seconds": "How long running answers may go on after a stop is asked for; then they are cut.",
    "shutdown_timeout": "Seconds until the connections of cut answers are closed.",
    "stats_interval": "Seconds between the throughput lines of a busy server; 0: none.",
}
"""The help of every setting."""

NAMES = {"cors_origins": "cors_origin"}
"""Flags that are not called as their setting: one that is given once for each entry."""

ENVIRONMENT = {"api_key": "DGPP_API_KEY"}
"""Settings that an environment variable may hold: a command line is read by everybody on the machine."""


def takes_http_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for every setting of the HTTP side instead of its parameter `settings`."""
    kinds = get_type_hints(Settings)
    flags = [_flag(field.name, kinds[field.name], field.default) for field in fields(Settings)]
    return takes_group(command, "settings", flags, http_settings)


def http_settings(given: Mapping[str, Any]) -> Settings:
    """The settings from the values of flags. What is wrong with them ends the command with status 2."""
    values: dict[str, Any] = {**given, "cors_origins": tuple(given["cors_origins"] or ())}
    try:
        return Settings(**values)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _flag(key: str, kind: Any, default: Any) -> inspect.Parameter:
    name = f"--{NAMES.get(key, key).replace('_', '-')}"
    option = typer.Option(name, help=HELP[key], envvar=ENVIRONMENT.get(key))
    if key == "cors_origins":
        kind, default = list[str] | None, None
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
