"""From a parsed request to a running turn: prompt, budget, admission. Knows nothing of HTTP or of any model."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from dgpp.engine.request import Engine, Handle, Overloaded, Request, RequestRefused, Sampling
from dgpp.serve.body import JsonObject
from dgpp.serve.decoding import Decoding
from dgpp.serve.errors import (
    BY_CODE,
    CONTEXT_LENGTH_EXCEEDED,
    ENGINE_STATES,
    INVALID,
    SERVER_SHUTDOWN,
    ApiError,
    ErrorKind,
)
from dgpp.serve.requests import ChatRequest, CompletionRequest, Served, StreamOptions
from dgpp.serve.settings import Settings
from dgpp.serve.telemetry import Telemetry
from dgpp.serve.template_kwargs import FIELD, read_template_kwargs
from dgpp.serve.turn import Turn, new_id
from dgpp.text.message_error import MessageError
from dgpp.text.messages import parse_messages
from dgpp.text.pipeline import Pipeline
from dgpp.text.template import ChatTemplate, TemplateError
from dgpp.text.tokenizer import Tokenizer


class Service:
    """One engine, its tokenizer and chat template, and the names the model is served under (the first is the main
    one). `eos` are the ids that end an answer; `sampling_defaults` and `template_defaults` (chat_template_kwargs, from
    `default_template_kwargs`) hold for fields and keys that a request leaves out. `digests()` reports the SHA-256 of
    the model's files as far as they are known."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        names: tuple[str, ...],
        eos: frozenset[int],
        settings: Settings,
        sampling_defaults: Sampling | None = None,
        template_defaults: JsonObject | None = None,
        digests: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        if not names:
            raise ValueError("a served model needs at least one name")
        self.engine = engine
        reads = frozenset() if template is None else template.reads
        self.served = Served(names, engine.info.vocab_size, reads)
        self.template_defaults = template_defaults or JsonObject()
        self._template_variables = read_template_kwargs({FIELD: self.template_defaults}, reads)
        self.sampling_defaults = sampling_defaults or Sampling()
        self.digests = digests
        self.telemetry = Telemetry(names[0])
        self._tokenizer = tokenizer
        self._template = template
        self._eos = eos
        self._settings = settings
        self._closing = False

    def chat(self, chat: ChatRequest) -> Turn:
        """Begins a chat answer. Raises ApiError."""
        arrived = time.monotonic()
        self._refuse_when_closing()
        prompt = self._chat_prompt(chat)
        return self._begin("chatcmpl-", chat.model, prompt, chat.decoding, arrived, continues=False)

    def complete(self, asked: CompletionRequest) -> Turn:
        """Begins a continuation of a raw prompt. Raises ApiError."""
        arrived = time.monotonic()
        self._refuse_when_closing()
        prompt = self._tokenizer.encode(asked.prompt, prefix=True)
        return self._begin("cmpl-", asked.model, prompt, asked.decoding, arrived, continues=True)

    def ping_interval(self, stream: StreamOptions) -> int:
        """Seconds of silence before a keep-alive comment; -1 for none. The request's wish comes first."""
        return self._settings.sse_ping_interval if stream.ping_interval is None else stream.ping_interval

    def shutdown(self, timeout: float) -> None:
        """Refuses new requests from now on and ends the running ones."""
        self._closing = True
        self.engine.shutdown(timeout)

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ApiError(SERVER_SHUTDOWN, ENGINE_STATES["server_shutdown"])

    def _chat_prompt(self, chat: ChatRequest) -> list[int]:
        if self._template is None:
            raise ApiError(INVALID, "This model has no chat template; use /v1/completions.", "messages")
        try:
            variables = {**self._template_variables, **chat.template_variables}
            segments = self._template.render(parse_messages(chat.messages), variables=variables)
        except MessageError as error:
            kind = BY_CODE[error.code] if error.code is not None else INVALID
            raise ApiError(kind, str(error), error.param) from None
        except TemplateError as error:
            raise ApiError(INVALID, str(error), "messages") from None
        prompt = self._tokenizer.encode_segments(segments)
        if not prompt:
            raise ApiError(INVALID, "These messages make an empty prompt.", "messages")
        return prompt

    def _begin(
        self, prefix: str, model: str, prompt: list[int], decoding: Decoding, arrived: float, *, continues: bool
    ) -> Turn:
        request = Request(
            prompt=tuple(prompt),
            max_tokens=self._budget(len(prompt), decoding),
            eos=self._eos,
            ignore_eos=decoding.ignore_eos,
            sampling=decoding.sampling(self.sampling_defaults, secrets.randbits(64)),
        )
        handles = self._submit(request, decoding.n)
        pipelines = [Pipeline(self._tokenizer, eos=self._eos, stop=decoding.stop, continues=continues) for _ in handles]
        return Turn(new_id(prefix), model, len(prompt), handles, pipelines, self.telemetry, arrived)

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
