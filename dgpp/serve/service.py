"""From a parsed request to a running turn: prompt, constraint, budget, admission. Knows nothing of HTTP or of any
model."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dgpp.engine.request import Constraint, Engine, Handle, Overloaded, Request, RequestRefused, Sampling
from dgpp.serve.errors import (
    BY_CODE,
    CONTEXT_LENGTH_EXCEEDED,
    ENGINE_STATES,
    OVERLOADED,
    SERVER_SHUTDOWN,
    ApiError,
    ErrorKind,
)
from dgpp.serve.files.parts import resolve_files
from dgpp.serve.files.store import FileStore
from dgpp.serve.metrics.telemetry import Telemetry
from dgpp.serve.preparing import Preparing
from dgpp.serve.prompt import Prompts, Template
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.chat import ChatRequest
from dgpp.serve.requests.completion import CompletionRequest
from dgpp.serve.requests.decoding import Decoding
from dgpp.serve.requests.output import grammar_refusal
from dgpp.serve.requests.served import Served
from dgpp.serve.requests.stream import StreamOptions
from dgpp.serve.requests.thinking import FIELD, read_template_kwargs, together
from dgpp.serve.settings import Settings
from dgpp.serve.turn import Turn, new_id
from dgpp.text.constraints import Compiler, CompilerBusy, GrammarError, Plan, Thinking, TokenVocabulary, Tools
from dgpp.text.pipeline import Pipeline
from dgpp.text.reasoning import CLOSER, Reasoning
from dgpp.text.tokenizer import Tokenizer

HAND_OVER = f"\n{CLOSER}\n\n"
"""What ends the thinking when its budget is spent."""


@dataclass(frozen=True)
class Asked:
    """What a turn is begun with: the prompt, how to draw, what the answer has to keep to (None: nothing), and how each
    choice is read (`pipeline` makes one for each). `prefix` is that of its id."""

    prefix: str
    model: str
    prompt: list[int]
    decoding: Decoding
    plan: Plan | None
    pipeline: Callable[[], Pipeline]


class Service:
    """One engine, its tokenizer and chat template, and the names the model is served under (the first is the main
    one). `eos` are the ids that end an answer; `sampling_defaults` and `template_defaults` (chat_template_kwargs, from
    `default_template_kwargs`) hold for fields and keys that a request leaves out. `digests()` reports the SHA-256 of
    the model's files as far as they are known; `rope_scaling` are the settings of a ramp over its positions.

    Raises ValueError for a directory of files that cannot be used.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        template: Template | None,
        *,
        names: tuple[str, ...],
        eos: frozenset[int],
        settings: Settings,
        sampling_defaults: Sampling | None = None,
        template_defaults: JsonObject | None = None,
        digests: Callable[[], dict[str, Any]] | None = None,
        rope_scaling: Mapping[str, Any] | None = None,
    ) -> None:
        if not names:
            raise ValueError("a served model needs at least one name")
        info = engine.info
        self.engine = engine
        self.prompts = Prompts(tokenizer, template)
        self.served = Served(names, info.vocab_size, self.prompts.controls, self.prompts.dialect, info.constrains)
        self.template_defaults = template_defaults or JsonObject()
        self.template_variables = read_template_kwargs({FIELD: self.template_defaults}, self.prompts.controls)
        self.sampling_defaults = sampling_defaults or Sampling()
        self.digests = digests
        self.rope_scaling = rope_scaling
        self.telemetry = Telemetry(names[0])
        self.files = FileStore.of(settings)
        self.reasoning_in_content = settings.reasoning_in_content
        self._preparing = Preparing()
        self._compiler = Compiler(TokenVocabulary.of(tokenizer, info.vocab_size, eos))
        self._tokenizer = tokenizer
        self._hand_over = tuple(tokenizer.encode(HAND_OVER, control=True))
        self._eos = eos
        self._settings = settings
        self._closing = False

    def chat(self, chat: ChatRequest) -> Turn:
        """Begins a chat answer. Raises ApiError."""
        arrived = time.monotonic()
        self._refuse_when_closing()
        prompt = self._chat_prompt(chat)
        markers, offered = self.prompts.markers, chat.output.offered
        inside = markers is not None and markers.open_at_end(prompt)
        constrains = self.served.constrains
        dialect = self.prompts.dialect if offered else None

        def pipeline() -> Pipeline:
            ends = frozenset[int]() if dialect is None else self.prompts.call_openers
            return Pipeline(
                self._tokenizer,
                eos=self._eos,
                stop=chat.decoding.stop,
                continues=chat.continues,
                reasoning=None if markers is None else Reasoning(markers, inside, ends),
                calls=None if dialect is None else dialect.parser(offered, streams=constrains),
                folded=self.reasoning_in_content,
                lead="" if dialect is None else dialect.lead.strip("\n"),
            )

        plan = self._plan(chat, inside) if constrains else None
        return self._begin(Asked("chatcmpl-", chat.model, prompt, chat.decoding, plan, pipeline), arrived)

    def complete(self, asked: CompletionRequest) -> Turn:
        """Begins a continuation of a raw prompt; it has as many choices as `best_of` says. Raises ApiError."""
        arrived = time.monotonic()
        self._refuse_when_closing()
        with self._preparing.place():
            prompt = self.prompts.raw(asked.prompt)
        decoding = asked.decoding
        if asked.best_of is not None:
            listed = 0 if decoding.logprobs is None else decoding.logprobs  # they tell which answers are the likeliest
            decoding = replace(decoding, n=asked.best_of, logprobs=listed)

        def pipeline() -> Pipeline:
            return Pipeline(self._tokenizer, eos=self._eos, stop=decoding.stop, continues=True)

        plan = None if asked.format.kind == "text" else Plan(asked.format)
        return self._begin(Asked("cmpl-", asked.model, prompt, decoding, plan, pipeline), arrived)

    def prompt_tokens(self, chat: ChatRequest) -> int:
        """How many tokens the prompt of `chat` has. Raises ApiError."""
        return len(self._chat_prompt(chat))

    def prepare(self) -> None:
        """Begins to read, beside what runs, what the first constrained request would wait for."""
        if self.served.constrains:
            self._compiler.prepare()

    def ping_interval(self, stream: StreamOptions) -> int:
        """Seconds of silence before a keep-alive comment; -1 for none. The request's wish comes first."""
        return self._settings.sse_ping_interval if stream.ping_interval is None else stream.ping_interval

    def shutdown(self, timeout: float) -> None:
        """Refuses new requests from now on and ends the running ones."""
        self._closing = True
        self.engine.shutdown(timeout)
        self._compiler.close()
        self.files.close()

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ApiError(SERVER_SHUTDOWN, ENGINE_STATES["server_shutdown"])

    def _chat_prompt(self, chat: ChatRequest) -> list[int]:
        messages = resolve_files(chat.messages, self.files, self.files.limits)
        variables = together(self.template_variables, chat.template_variables)
        with self._preparing.place():
            return self.prompts.chat(messages, variables, chat.output.offered, chat.continues)

    def _plan(self, chat: ChatRequest, inside: bool) -> Plan | None:
        """What the answer has to keep to; None when it is free."""
        output, dialect, markers = chat.output, self.prompts.dialect, self.prompts.markers
        budget = chat.thinking_budget if markers is not None else None
        if not output.tools and output.format.kind == "text" and budget is None:
            return None
        thinking = tools = None
        if markers is not None:
            thinking = Thinking(markers.closer, markers.opener, inside, budget, self._hand_over)
        if output.tools and dialect is not None:
            tools = Tools(output.tools, dialect, output.choice)
        return Plan(output.format, thinking, tools)

    def _begin(self, asked: Asked, arrived: float) -> Turn:
        decoding = asked.decoding
        budget = self._budget(len(asked.prompt), decoding)
        request = Request(
            prompt=tuple(asked.prompt),
            max_tokens=budget,
            eos=self._eos,
            ignore_eos=decoding.ignore_eos,
            sampling=decoding.sampling(self.sampling_defaults, secrets.randbits(64)),
            min_tokens=min(decoding.min_tokens, budget),
            constraint=None if asked.plan is None else self._constraint(asked.plan),
        )
        handles = self._submit(request, decoding.n)
        pipelines = [asked.pipeline() for _ in handles]
        return Turn(new_id(asked.prefix), asked.model, len(asked.prompt), handles, pipelines, self.telemetry, arrived)

    def _constraint(self, plan: Plan) -> Callable[[], Constraint] | None:
        """What makes the constraints of `plan`; None where it asks for nothing. Raises ApiError when it cannot be
        enforced."""
        try:
            return self._compiler.compile(plan)
        except GrammarError as error:
            raise grammar_refusal(error) from None
        except CompilerBusy:
            raise ApiError(OVERLOADED, "Too many schemas are being compiled; try again later.") from None

    def _budget(self, prompt_tokens: int, decoding: Decoding) -> int:
        """Tokens the answer may have: what was asked for, else the server's default, and all that fits without one.

        Only a default is cut to what fits; a wish that does not fit is refused, with the counts a client needs to
        shorten its prompt.
        """
        limit = self.engine.info.context_limit
        left = limit - prompt_tokens
        wanted = decoding.max_tokens
        if wanted is None:
            wanted = max(1, min(left, self._settings.default_max_tokens or left))
        if wanted > left:
            raise ApiError(
                CONTEXT_LENGTH_EXCEEDED,
                f"This model's maximum context length is {limit} tokens. However, you requested "
                f"{prompt_tokens + wanted} tokens ({prompt_tokens} in the prompt, {wanted} in the completion).",
                "max_tokens",
            )
        return wanted

    def _submit(self, request: Request, count: int) -> list[Handle]:
        try:
            handles = self.engine.submit(request, count=count)
        except RequestRefused as refusal:
            if isinstance(refusal, Overloaded):
                self.telemetry.count("requests_total")
                self.telemetry.count("requests_shed")
            kind: ErrorKind = BY_CODE[refusal.code]
            param = "max_tokens" if kind is CONTEXT_LENGTH_EXCEEDED else None
            raise ApiError(kind, ENGINE_STATES.get(refusal.code, str(refusal)), param) from None
        self.telemetry.count("requests_total")
        return handles
