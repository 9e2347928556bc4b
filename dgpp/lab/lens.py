"""The logit lens: what the model would say if each layer were the last.

The residual stream after every layer goes through the model's own final norm and head, with the kernels of the served
step; after the last layer that is the served step, bit for bit.
Source of the idea: nostalgebraist, "interpreting GPT: the logit lens" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.lab.model import Model, Prompt


@dataclass(frozen=True, repr=False)
class Lens:
    """For L+1 stages (the embedding, then after each layer) and T tokens: the likeliest next tokens."""

    ids: tuple[int, ...]
    stages: tuple[str, ...]
    top: np.ndarray  # int32 [L+1, T, k]: ids by logit descending, then id ascending
    logprobs: np.ndarray  # float32 [L+1, T, k]: theirs
    final: np.ndarray  # float32 [L+1, T]: log-probability of the token that the last layer puts first
    rank: np.ndarray  # int32 [L+1, T]: how many tokens the stage puts before that one

    def __repr__(self) -> str:
        return f"Lens({len(self.stages)} stages, {len(self.ids)} tokens, top {self.top.shape[2]})"


def lens(model: Model, prompt: Prompt, top: int = 5) -> Lens:
    """The lens over every token of `prompt`. Logits of one stage at a time are held, [T, V]."""
    forward = model.forward(prompt, capture=("embed", "layers.*.out"))
    stages = ("embed", *(f"layers.{layer}.out" for layer in range(model.config.layers)))
    picks = forward.logits.argmax(axis=1)
    rows = np.arange(len(forward.ids))
    tops, logprobs, finals, ranks = [], [], [], []
    for stage in stages:
        logits = model.unembed(forward.activations[stage])
        order = np.argsort(-logits, axis=1, kind="stable")[:, :top]
        values = log_softmax(logits)
        tops.append(order)
        logprobs.append(np.take_along_axis(values, order, axis=1))
        finals.append(values[rows, picks])
        ranks.append((logits > logits[rows, picks][:, None]).sum(axis=1))
    return Lens(
        forward.ids,
        stages,
        np.stack(tops).astype(np.int32),
        np.stack(logprobs),
        np.stack(finals),
        np.stack(ranks).astype(np.int32),
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities along the last axis, summed in float64: float32 of the same shape."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return (wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))).astype(np.float32)
