"""The server's process of `bench.serve_load`: the HTTP side over an engine that notes when it hands on each token."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

STEP_SECONDS = 0.05
WRITE_TIMEOUT = 3.0
SLOW_TURN = """\
{% if messages[0].content.startswith("slow") %}
{%- for _ in range(1000) %}{% for _ in range(1000) %}{% endfor %}{% endfor %}
{%- endif %}"""
"""Makes a template slow for messages that ask for it: a million turns of a loop."""


class Timed(Sequence[int]):
    """A script of `x` that notes when the engine takes each token."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.times: list[float] = []

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        self.times.append(time.monotonic())
        return ord("x")


def serve() -> None:
    """Serves until standard input ends. Answers each line there with one of JSON: the times of every stream by name."""
    from dgpp.engine.request import EngineInfo, Request
    from dgpp.engine.scripted import ScriptedEngine
    from dgpp.serve.server import HttpServer
    from dgpp.serve.settings import Settings
    from tests.serve.support import START, TEMPLATE, Bench

    times: dict[str, Timed] = {}

    def script(request: Request, index: int) -> Timed:
        name = bytes(id for id in request.prompt if id < START).decode().split("\n")[1]
        times[name] = Timed(10**6)
        return times[name]

    info = EngineInfo(512, position_ceiling=10**6, pool_tokens=10**9, max_concurrency=512, queue_limit=0)
    engine = ScriptedEngine(script, info=info, step_seconds=STEP_SECONDS)
    settings = Settings(port=0, write_timeout=WRITE_TIMEOUT, max_unsent_bytes=64 * 1024)
    bench = Bench(engine, settings, None, SLOW_TURN + TEMPLATE)
    server = HttpServer(bench.service, settings)
    server.start()
    print(server.url, flush=True)
    for _ in sys.stdin:
        print(json.dumps({name: timed.times for name, timed in times.items()}), flush=True)
    server.stop()


@dataclass
class Server:
    """The other process, as the client sees it."""

    process: subprocess.Popen[str]
    address: tuple[str, int]

    def times(self) -> dict[str, list[float]]:
        """When the engine handed on each token, by the name of the stream."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self.process.stdout.readline())
        return found

    def resident_bytes(self) -> int:
        """Bytes of its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@contextmanager
def served() -> Iterator[Server]:
    """A server of its own for one measurement."""
    command = [sys.executable, "-m", "bench.serve_load_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = urlsplit(process.stdout.readline().strip())
        try:
            yield Server(process, (str(url.hostname), url.port or 0))
        finally:
            process.stdin.close()
            process.wait(60)


if __name__ == "__main__":
    serve()
