"""Benches: a scripted engine with the whole HTTP side above it, without and with a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dgpp.engine.request import EngineInfo, Sampling
from dgpp.engine.scripted import INFO, Script, ScriptedEngine
from dgpp.serve.server import HttpServer
from dgpp.serve.settings import Settings
from tests.serve.support import FIRST_WORD, TEMPLATE, Bench, ids, recut


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Makes benches: `bench(script, info=..., hold=..., step_seconds=..., defaults=..., template=...,
    template_kwargs=..., markers=..., **settings)`."""
    made: list[Bench] = []

    def make(
        script: Script | str | Callable[..., Script] = "Hello.",
        *,
        info: EngineInfo = INFO,
        hold: tuple[str, ...] = (),
        step_seconds: float = 0.0,
        defaults: Sampling | None = None,
        template: str = TEMPLATE,
        template_kwargs: str | None = None,
        markers: Sequence[str] = (),
        words: Sequence[bytes] = (),
        **settings: Any,
    ) -> Bench:
        said = ids(script) if isinstance(script, str) else script
        engine = ScriptedEngine(said, info=info, hold=hold, step_seconds=step_seconds)
        wanted = Settings(**{"port": 0, **settings})
        bench = Bench(engine, wanted, defaults, template, template_kwargs, markers, words)
        made.append(bench)
        if isinstance(said, list) and all(isinstance(id, int) and id < FIRST_WORD for id in said) and not hold:

            def again(seed: int) -> Bench:
                other, taken = recut([id for id in said if isinstance(id, int)], seed)
                options: dict[str, Any] = {"info": info, "defaults": defaults, "template": template}
                options |= {"template_kwargs": template_kwargs, "markers": markers, "words": taken, **settings}
                return make(other, **options)

            bench.again = again
            bench.script = [id for id in said if isinstance(id, int)]
        return bench

    yield make
    for each in made:
        each.engine.shutdown()


@pytest.fixture
def serving(bench: Callable[..., Bench]) -> Iterator[Callable[..., tuple[Bench, HttpServer]]]:
    """Like `bench`, with a real server on a free port of the loopback."""
    servers: list[HttpServer] = []

    def make(*args: Any, **kwargs: Any) -> tuple[Bench, HttpServer]:
        made = bench(*args, **kwargs)
        servers.append(HttpServer(made.service, made.settings))
        servers[-1].start()
        return made, servers[-1]

    yield make
    for server in servers:
        server.stop()
