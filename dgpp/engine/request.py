"""What goes into an engine and what comes out of it: requests, token events, and the interface servers talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

FinishReason = Literal["eos", "length", "stop", "cancelled"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn (spec E-8). Temperature 0 is exact greedy and draws nothing."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0  # 64 bits
    logprobs: int | None = None  # None: none; n: the chosen token's and those of the n most likely


class Constraint(Protocol):
    """Which ids one sequence may go on with: a pure function of the tokens accepted so far, so that every rank and
    every run finds the same. Used by one thread at a time."""

    def allowed(self) -> np.ndarray | None:
        """bool [V], at least one id of which is True; None when every id may follow."""

    def accept(self, token: int) -> None:
        """Goes on past `token`, one of the allowed ids."""


@dataclass(frozen=True)
class Request:
    """One sequence to generate. `max_tokens` counts the first token too; `eos` ids end it unless `ignore_eos`, and
    cannot be chosen before `min_tokens` tokens. `constraint` makes a fresh constraint for each continuation."""

    prompt: tuple[int, ...]
    max_tokens: int
    eos: frozenset[int] = frozenset()
    ignore_eos: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    min_tokens: int = 0
    constraint: Callable[[], Constraint] | None = None


def continuations(request: Request, count: int) -> list[Request]:
    """`count` requests for the same prompt: choice c samples with seed + c (64 bits)."""
    seeds = [(request.sampling.seed + choice) & (2**64 - 1) for choice in range(count)]
    return [replace(request, sampling=replace(request.sampling, seed=seed)) for seed in seeds]


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probability of a generated token, and the most likely ids with theirs (logit descending, then id)."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TokenEvent:
    """One generated token, in order. An `eos` token that ended the request is reported too."""

    token: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True)
class FinishEvent:
    """The last event of a request that ended as asked."""

    reason: FinishReason


@dataclass(frozen=True)
class FailEvent:
    """The last event of a request the engine could not serve to its end."""

    code: Literal["engine_failure", "server_shutdown", "constraint_failed"]
    message: str


Event = TokenEvent | FinishEvent | FailEvent


class RequestRefused(Exception):
    """Why a request was not accepted. `code` is the wire code of spec/api.md §2."""

    code = "invalid_request"


class ContextLengthExceeded(RequestRefused):
    """Prompt plus budget does not fit the context or the pool; the message names both counts."""

    code = "context_length_exceeded"


class Overloaded(RequestRefused):
    """The queue is full."""

    code = "overloaded"


class ShuttingDown(RequestRefused):
    """The engine no longer accepts requests."""

    code = "server_shutdown"


class EngineFailed(RequestRefused):
    """The engine stopped after an error."""

    code = "engine_failure"


class Handle(Protocol):
    """A running request as its owner sees it. All methods may be called from any thread."""

    admitted: float | None
    """`time.monotonic()` when the request got its slot; None before."""

    def events(self, timeout: float | None = None) -> Iterator[Event | None]:
        """Events in order, ending after a FinishEvent or FailEvent. Yields None whenever `timeout` seconds pass
        without one, so that the caller can look at its client."""

    def stop(self) -> None:
        """Ends the request at the next step with reason "stop" (a stop string was found)."""

    def cancel(self) -> None:
        """Ends the request at the next step with reason "cancelled", also while queued or prefilling. Idempotent;
        no effect after the end."""


@dataclass(frozen=True)
class EngineInfo:
    """What a server needs to know about an engine."""

    vocab_size: int
    position_ceiling: int  # tokens one request may hold by the model's positions
    pool_tokens: int  # tokens of the K/V pool
    max_concurrency: int
    queue_limit: int
    constrains: bool = True  # requests may have a constraint
    world_size: int = 1  # ranks that the model is sliced over
    prefill_budget: int = 0  # prompt tokens a step reads at most while others decode; 0: no bound
    idle_prefill_budget: int = 0  # and while none does

    @property
    def context_limit(self) -> int:
        """Most tokens (prompt plus generated) of one request."""
        return min(self.position_ceiling, self.pool_tokens)


STEP_EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, of the classes that durations of steps are counted in; a last class holds the rest."""


@dataclass(frozen=True)
class DecodeBatch:
    """The widths of steps with decoding rows, and how often each duration came up."""

    last_slots: int = 0  # rows of the last such step, padding included
    last_active: int = 0  # requests that decoded in it
    padded_rows: int = 0  # over all such steps
    by_active: Mapping[int, int] = field(default_factory=dict)  # steps by the number of requests that decoded
    durations: tuple[int, ...] = (0,) * (len(STEP_EDGES) + 1)  # steps by duration, see STEP_EDGES


@dataclass(frozen=True)
class PrefillProgress:
    """One request whose prompt is being read."""

    id: int
    slot: int
    prompt_tokens: int
    computed_tokens: int
    elapsed_ms: float  # since the request got its slot


@dataclass(frozen=True)
class EngineStats:
    """A snapshot of the counters (names of spec/api.md §13)."""

    active: int = 0
    queued: int = 0
    prefilling: int = 0
    pool_blocks_total: int = 0
    pool_blocks_in_use: int = 0
    requests_total: int = 0  # accepted
    requests_shed: int = 0  # refused with Overloaded
    requests_cancelled: int = 0
    requests_failed: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # by reason
    tokens_generated: int = 0
    prompts_prefilled: int = 0
    prompt_tokens: int = 0
    prompt_tokens_computed: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    step_ms: float = 0.0
    prefill_ms: float = 0.0
    compiles_after_ready: int = 0
    pending_admissions: int = 0  # those of `queued` that the engine's thread has not seen yet
    pending_cancellations: int = 0  # live requests that the next step ends for their owners
    record_tokens: int = 0  # tokens, prompt and generated, of live requests
    prefill_request_ms: float = 0.0  # from a slot to the first token, over all prompts
    decode: DecodeBatch = field(default_factory=DecodeBatch)
    prefills: tuple[PrefillProgress, ...] = ()
    failed: str | None = None  # why the engine stopped


class Engine(Protocol):
    """The interface between a server and whatever generates tokens."""

    @property
    def info(self) -> EngineInfo:
        """Limits, fixed for the engine's life."""

    def submit(self, request: Request, *, count: int = 1) -> list[Handle]:
        """Accepts `count` continuations of one prompt as a group, or none of them; choice c samples with seed + c.

        Raises ContextLengthExceeded, Overloaded, ShuttingDown or EngineFailed.
        """

    def stats(self) -> EngineStats:
        """The counters now."""

    def shutdown(self, timeout: float = 30.0) -> None:
        """Refuses new requests, ends live ones with `server_shutdown`, and joins the engine's thread."""
