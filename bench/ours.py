"""Our side of `bench.decode_cpu`: the engine that serves, and the bytes that a pass over a model moves at least."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.work import Timing, Work
from dgpp.checkpoint.spec import flatten
from dgpp.engine.request import Engine, Request, TokenEvent
from dgpp.lab import Model


@dataclass(frozen=True)
class Traffic:
    """Bytes that a pass moves at least."""

    layers: int  # bytes of the weights that every pass reads,
    head: int  # and of those only needed where logits are
    cache: int  # cache bytes of one token

    def step(self, streams: int, context: float) -> int:
        """One decode step of `streams` sequences of `context` tokens."""
        return self.layers + self.head + int(streams * context * self.cache)

    def prompt(self, tokens: int, tokens_per_pass: int) -> int:
        """A whole prompt: the weights once a pass, every token's cache written, and read by all later passes."""
        passes = -(-tokens // tokens_per_pass)
        read = sum(min(tokens, (i + 1) * tokens_per_pass) for i in range(passes))
        return passes * self.layers + self.head + (tokens + read) * self.cache


def traffic_of(model: Model) -> Traffic:
    """The traffic of a loaded model."""
    sizes = {path: spec.nbytes for path, spec in flatten(model.family.abstract(model.config))}
    embed = sizes.pop("embed")
    head = sizes.pop("head", embed)  # a tied embedding is the head; an untied one is only looked up
    return Traffic(sum(sizes.values()), head, sum(spec.bytes_per_token for spec in model.core.state_specs.values()))


def timings_of(engine: Engine, work: Work) -> list[Timing]:
    """Our timings, through the engine that serves."""
    timings = []
    for streams in work.streams:
        times = [_decode(engine, work.prompts(streams), work.steps) for _ in range(work.repeats)]
        timings.append(Timing("dgpp", "decode", streams, tuple(times)))
    for size in work.prefill:
        times = [_prefill(engine, work.tokens[:size]) for _ in range(work.repeats)]
        timings.append(Timing("dgpp", "prefill", size, tuple(times)))
    return timings


def _decode(engine: Engine, prompts: Sequence[Sequence[int]], steps: int) -> float:
    """Seconds of a step while all streams decode: from the last one's first token to the first one's last."""
    # The first streams decode while the later prompts are read; what they are ahead is added to their budgets.
    ahead = len(prompts)
    budget = steps + 1 + ahead
    handles = [engine.submit(Request(tuple(p), budget, ignore_eos=True))[0] for p in prompts]
    arrivals: list[list[float]] = [[] for _ in handles]

    def read(stream: int) -> None:
        for event in handles[stream].events():
            if isinstance(event, TokenEvent):
                arrivals[stream].append(time.perf_counter())

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(handles))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(len(times) != budget for times in arrivals):
        raise RuntimeError(f"expected {budget} tokens of every stream, got {[len(times) for times in arrivals]}")
    start, end = max(times[0] for times in arrivals), min(times[-1] for times in arrivals)
    counted = sum(start < moment <= end for times in arrivals for moment in times) / len(arrivals)
    if counted == 0:
        raise RuntimeError("all tokens were read at once; so short a run needs more steps")
    return (end - start) / counted


def _prefill(engine: Engine, tokens: Sequence[int]) -> float:
    """Seconds from a prompt to its first token."""
    started = time.perf_counter()
    for _ in engine.submit(Request(tuple(tokens), 1, ignore_eos=True))[0].events():
        return time.perf_counter() - started
    raise RuntimeError("the engine ended a request without an event")
