"""`dgpp serve` as a process of its own, on a free port, for tests of the whole."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

START_SECONDS = 600
"""A model of many parts compiles for minutes on a busy machine."""


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The base URL of a server started with `dgpp serve ARGUMENTS`; ended by SIGTERM, which must exit with 0."""
    command = [sys.executable, "-m", "dgpp.cli.main", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        url = ""
        deadline = threading.Timer(START_SECONDS, process.kill)
        deadline.start()
        for line in process.stderr:
            lines.append(line)
            if "at http://" in line:
                url = line[line.index("http://") :].strip().removesuffix("/v1")
                break
        deadline.cancel()
        assert url, "".join(lines)
        rest = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
        rest.start()
        try:
            yield url
        finally:
            process.terminate()
            status = process.wait(60)
            rest.join()
        assert status == 0, "".join(lines)


def metrics(url: str) -> dict[str, Any]:
    """The JSON counters of a server."""
    with urllib.request.urlopen(f"{url}/metrics") as reply:
        found: dict[str, Any] = json.load(reply)
        return found


def idle(url: str, seconds: float = 20) -> dict[str, Any]:
    """The counters once nothing runs any more."""
    end = time.monotonic() + seconds
    while True:
        found = metrics(url)["scheduler"]
        if not (found["active"] or found["queued"] or found["prefilling"]) or time.monotonic() > end:
            return metrics(url)
        time.sleep(0.02)
