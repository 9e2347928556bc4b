"""A model as notebooks hold it: the served step with its activations, generation, and the weights to look at.

Nothing here computes in another way than the server: `forward` runs the compiled step that serves (with outputs
added), and `generate` takes the device's picks or the engine's sampler, so bits and texts are those of the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import jax
import numpy as np

from dgpp.checkpoint.config import eos_ids
from dgpp.checkpoint.load import Progress
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree
from dgpp.engine.core import Core
from dgpp.engine.open import Opened, open_model
from dgpp.engine.options import ModelOptions
from dgpp.engine.request import Sampling, TokenLogprobs
from dgpp.engine.sampler import Sampler, needs_logits, validate
from dgpp.engine.session import Session, session
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.lab.layer import Blocks, Layer, blocks_of, layer_of
from dgpp.lab.tree import weight_html, weight_table
from dgpp.lab.unembed import Unembed
from dgpp.models import Family
from dgpp.text.events import Event, FinishReason, collect
from dgpp.text.messages import parse_messages
from dgpp.text.pipeline import Pipeline
from dgpp.text.segments import Segment, joined
from dgpp.text.template import ChatTemplate
from dgpp.text.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Messages
"""A raw text, token ids, or chat messages. A raw text is read as `/v1/completions` reads it."""


@dataclass(frozen=True, repr=False)
class Forward:
    """What the model computed for `ids` (T tokens)."""

    ids: tuple[int, ...]
    logits: np.ndarray  # float32 [T, V]
    activations: dict[str, np.ndarray] = field(default_factory=dict)  # [T, ...], as stored: bfloat16 or float32

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.logits.shape))
        return f"Forward({len(self.ids)} tokens, logits float32 [{shape}], {len(self.activations)} activations)"


@dataclass(frozen=True)
class Generation:
    """A generated text. `ids` includes the token that ended it; `text` is what a client of the server reads."""

    ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of `ids`, when they were asked for


@dataclass(eq=False, repr=False)
class Model:
    """A loaded model. Not safe to use from several threads at once, nor while an engine runs on its `core`."""

    name: str
    checkpoint: Checkpoint
    family: Family
    config: Any
    tree: SpecTree  # of the tensors, in the formats of the checkpoint
    weights: dict[str, Any]  # the tree of `Weight`s on the host
    core: Core
    notes: tuple[str, ...] = ()  # what was made of contradictions in the checkpoint
    options: ModelOptions = field(default_factory=ModelOptions)
    _busy: set[int] = field(default_factory=set)  # slots of sessions

    @classmethod
    def of(cls, opened: Opened) -> Model:
        """A model that is open already."""
        return cls(
            opened.name,
            opened.checkpoint,
            opened.family,
            opened.config,
            opened.tree,
            opened.weights,
            opened.core,
            opened.notes,
            opened.options,
        )

    # --- text ---------------------------------------------------------------------------------------------------------

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer. Raises TokenizerError where it has none."""
        return Tokenizer.load(self.checkpoint.directory)

    @cached_property
    def template(self) -> ChatTemplate:
        """The checkpoint's chat template. Raises TemplateError where it has none."""
        return ChatTemplate.load(self.checkpoint.directory, self.tokenizer)

    @cached_property
    def eos(self) -> frozenset[int]:
        """The ids that end an answer."""
        return eos_ids(self.checkpoint)

    def render(self, messages: Messages) -> str:
        """The prompt that the chat template makes of `messages`, as people read it."""
        return joined(self._segments(messages))

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt. Raises ValueError for an empty one and for ids outside the vocabulary."""
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt, prefix=True)
        elif messages := [item for item in prompt if isinstance(item, Mapping)]:
            ids = self.tokenizer.encode_segments(self._segments(messages))
        else:
            ids = [int(item) for item in prompt if not isinstance(item, Mapping)]
        if not ids:
            raise ValueError("the prompt is empty; give at least one token")
        wrong = [token for token in ids if not 0 <= token < self.config.vocab_size]
        if wrong:
            raise ValueError(f"token {wrong[0]} is outside the vocabulary of {self.config.vocab_size}")
        return tuple(ids)

    def _segments(self, messages: Messages) -> list[Segment]:
        return self.template.render(parse_messages([dict(message) for message in messages]))

    # --- forward ------------------------------------------------------------------------------------------------------

    def forward(self, prompt: Prompt, capture: str | Sequence[str] | None = None, cuts: Sequence[int] = ()) -> Forward:
        """The logits after every token of `prompt`, and the activations whose names match `capture`.

        `capture` is a name like "layers.3.attn.q", or several, with the wildcards of a shell;
        `m.family.sites(m.config)` lists them. `cuts` are positions at which the prompt is fed in separate pieces,
        which changes no bit. In a world of several ranks, activations are rank 0's part. Raises KeyError for a name
        that matches nothing, ValueError for a cut outside the prompt, OutOfPages for a prompt longer than a slot.
        """
        ids = self.ids(prompt)
        if any(not 0 < cut < len(ids) for cut in cuts):
            raise ValueError(f"cuts {list(cuts)} must lie between 1 and {len(ids) - 1}")
        patterns = () if capture is None else (capture,) if isinstance(capture, str) else tuple(capture)
        borders = [0, *sorted(set(cuts)), len(ids)]
        with self.session(len(ids)) as s:
            logits = [s.every(ids[start:stop], Phase.PREFILL, patterns) for start, stop in pairwise(borders)]
        activations = {name: np.concatenate(parts) for name, parts in s.activations.items()}
        return Forward(ids, np.concatenate(logits), activations)

    def generate(
        self,
        prompt: Prompt,
        max_tokens: int = 64,
        *,
        stop: str | Sequence[str] = (),
        ignore_eos: bool = False,
        **sampling: Any,
    ) -> Generation:
        """The continuation of `prompt`, as the server would give it.

        `sampling` are the fields of `dgpp.engine.request.Sampling` (temperature, top_p, top_k, min_p, seed, penalties,
        logit_bias, logprobs). Without any the text is greedy; a server may have other defaults for what a request
        leaves out. Raises ValueError naming a field that cannot be used, OutOfPages when prompt and `max_tokens` do
        not fit a slot, ArithmeticError when the model's logits are not numbers.
        """
        ids = self.ids(prompt)
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        settings = Sampling(**sampling)
        validate(settings, self.config.vocab_size)
        sampler = Sampler(settings, ids, self.config.vocab_size) if needs_logits(settings) else None
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        pipeline = Pipeline(self.tokenizer, eos=self.eos, stop=stops, continues=isinstance(prompt, str))
        events: list[Event] = []
        generated: list[int] = []
        logprobs: list[TokenLogprobs] = []
        reason: Literal["eos", "length", "stop"] = "length"
        with self.session(len(ids) + max_tokens) as s:
            feed: Sequence[int] = ids
            while len(generated) < max_tokens:
                token, its_logprobs = _next(s, feed, Phase.DECODE if generated else Phase.PREFILL, sampler)
                generated.append(token)
                if its_logprobs is not None:
                    logprobs.append(its_logprobs)
                events += pipeline.feed(token, its_logprobs)
                if token in self.eos and not ignore_eos:
                    reason = "eos"
                    break
                if pipeline.stopped:
                    reason = "stop"
                    break
                feed = (token,)
        answer = collect([*events, *pipeline.finish(reason)])
        assert answer.finish_reason is not None
        return Generation(tuple(generated), answer.content, answer.finish_reason, tuple(logprobs))

    @contextmanager
    def session(self, tokens: int) -> Iterator[Session]:
        """A free slot with room for `tokens` tokens, to feed by hand; freed at the end. Raises OutOfPages."""
        slot = next((slot for slot in range(self.core.settings.slots) if slot not in self._busy), None)
        if slot is None:
            raise ValueError(f"all {self.core.settings.slots} slots are in use; end a session or load more slots")
        with session(self.core, slot, tokens) as s:
            self._busy.add(slot)
            try:
                yield s
            finally:
                self._busy.discard(slot)

    # --- a look inside ------------------------------------------------------------------------------------------------

    def layer(self, index: int) -> Layer:
        """Layer `index` as functions of the residual stream, without an engine. Negative indices count from the end.

        Raises IndexError for a layer that is not there, ValueError for a model that is spread over a world.
        """
        layers = self.config.layers
        if not -layers <= index < layers:
            raise IndexError(f"layer {index} is not one of the {layers} layers")
        return layer_of(self, self.blocks, index % layers)

    @cached_property
    def blocks(self) -> Blocks:
        """The compiled blocks of the layers."""
        return blocks_of(self)

    @cached_property
    def unembed(self) -> Unembed:
        """Final norm and head as a function of the residual stream."""
        return Unembed(self)

    @cached_property
    def placed(self) -> dict[str, Any]:
        """The tree of weights on the device. On a CPU it shares the memory of `weights`."""
        placed: dict[str, Any] = jax.device_put(self.weights)
        return placed

    def show(self) -> None:
        """Prints the tree of weights: path, name in the checkpoint, shape, format, bytes, and where leaves are cut."""
        from rich.console import Console

        Console().print(weight_table(self), highlight=False)

    def __repr__(self) -> str:
        core = self.core
        return (
            f"Model({self.name}: {self.family.name}, {self.config.layers} layers, kernels {core.kernels.name}, "
            f"world {core.settings.world}, {core.settings.slots} slots, pool of {core.settings.pool_tokens} tokens)"
        )

    def _repr_html_(self) -> str:
        return weight_html(self)


def load(
    model: str | None = None,
    *,
    slots: int = CoreSettings.slots,
    pool_tokens: int = CoreSettings.pool_tokens,
    page_tokens: int = CoreSettings.page_tokens,
    row_families: Sequence[int] = CoreSettings.row_families,
    world: int = 1,
    verify_rows: int = CoreSettings.verify_rows,
    kernels: str | None = None,
    progress: Progress | None = None,
    options: ModelOptions | None = None,
) -> Model:
    """The model of a directory or a hub id, or with no argument the embedded one, ready to run.

    `slots` and `pool_tokens` bound how many sequences, and tokens in all, can be held at once; `page_tokens` is a
    setting of the numerics (a server's default is the same). `world` is 1, or 2 or 4 on as many devices; `verify_rows`
    is the most rows of one verify segment. `kernels` is a name, None for the default; those that serve give the same
    bits. `progress(read, total)` hears of every tensor that is read. `options` are those of the engine about the model.

    Raises CheckpointError for a checkpoint that cannot be read, ValueError for settings that contradict each other.
    """
    settings = CoreSettings(slots, pool_tokens, page_tokens, tuple(row_families), world, verify_rows)
    return Model.of(open_model(model, settings, select(kernels) if kernels else None, progress, options=options))


def _next(s: Session, tokens: Sequence[int], phase: Phase, sampler: Sampler | None) -> tuple[int, TokenLogprobs | None]:
    """The token that follows after `tokens` are fed, by the device's pick or the sampler's choice."""
    most = max(s.core.settings.row_families)
    for first in range(0, len(tokens), most):
        part = tokens[first : first + most]
        sampled = (len(part) - 1,) if first + most >= len(tokens) else ()
        result = s.core.step([s.segment(part, phase, sampled)])
        s.length += len(part)
    if result.picks[0] < 0:
        raise ArithmeticError(f"the model's logits for position {s.length} are not numbers")
    if sampler is None:
        return int(result.picks[0]), None
    choice = sampler.choose(np.asarray(result.logits[0]))
    sampler.accept(choice.token)
    return choice.token, choice.logprobs
