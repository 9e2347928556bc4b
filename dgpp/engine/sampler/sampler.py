"""The sampler of one request: logits in, a token and its log-probabilities out (spec E-8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.engine.request import Sampling, TokenLogprobs
from dgpp.engine.sampler.decision import Filters, decide
from dgpp.engine.sampler.normaliser import Normaliser
from dgpp.engine.sampler.penalties import Penalties
from dgpp.engine.sampler.prefix import Prefix, scale
from dgpp.engine.sampler.rng import uniform
from dgpp.engine.sampler.settings import LARGEST, is_greedy, validate

WIDTHS = (128, 1024, 8192, 65536)
"""How many candidates are tried before all of them. The result does not depend on them, the work does."""


class LogitsError(ArithmeticError):
    """Logits that no token can be chosen from; the message names the id. It is the model's failure, not a request's."""


@dataclass(frozen=True)
class Choice:
    """A token, and its log-probabilities when the request wants them."""

    token: int
    logprobs: TokenLogprobs | None = None


class Sampler:
    """Chooses the tokens of one request, one `choose` and one `accept` for each.

    A choice is a pure function of (seed, `draws`, penalised logits); `draws` counts the draws made before, one for
    every chosen token at a temperature above 0 and none in greedy decoding. Sampling without drafts therefore uses
    draw number i for generated token i, whatever ran beside the request.

    `prompt` are the ids that the penalties count from the start. Raises ValueError naming a setting that cannot be
    used, or a prompt id outside the vocabulary.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], vocab_size: int, *, widths: Sequence[int] = WIDTHS
    ) -> None:
        validate(sampling, vocab_size)
        if len(prompt) and (min(prompt) < 0 or max(prompt) >= vocab_size):
            raise ValueError(f"prompt has ids outside the vocabulary of {vocab_size}: {min(prompt)} to {max(prompt)}")
        self.draws = 0
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._widths = widths
        self._filters = Filters.of(sampling)
        self._penalties = Penalties(sampling, prompt)

    def choose(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> Choice:
        """The next token for `logits`, float32 [V], and with it one draw at a temperature above 0.

        An id at -inf cannot be chosen, nor one whose `allowed` (bool [V], a constraint's mask) is False. Raises
        LogitsError, and draws nothing, when a logit is NaN or +inf or when no id is left.

        Log-probabilities are float32 numbers. At a temperature above 0 they are those of the distribution the token was
        drawn from, and only ids that its filters kept are listed. In greedy decoding they are those of the penalised
        and masked logits at temperature 1, unfiltered.
        """
        if logits.shape != (self._vocab_size,) or logits.dtype != np.float32:
            raise ValueError(f"logits must be float32 [{self._vocab_size}], got {logits.dtype} {list(logits.shape)}")
        _check(logits)
        values = self._penalties.apply(logits, allowed)
        best = int(np.argmax(values))  # the first of equals, which is the lower id
        if values[best] == -np.inf:
            raise LogitsError(f"every one of the {self._vocab_size} logits is -inf after bias and mask")
        if is_greedy(self._sampling):
            return self._greedy(values, best)
        choice = self._drawn(values, uniform(self._sampling.seed, self.draws))
        self.draws += 1
        return choice

    def accept(self, token: int) -> None:
        """Tells the penalties that `token` was generated."""
        self._penalties.accept(token)

    def _greedy(self, values: np.ndarray, best: int) -> Choice:
        """The most likely id, with the log-probabilities at temperature 1."""
        wanted = self._sampling.logprobs
        if wanted is None:
            return Choice(best)
        total = Normaliser(values, np.float32(1)).exact
        prefix = Prefix.of(values, max(1, wanted))
        logprobs = _logprobs(prefix.logits, total)
        return Choice(best, TokenLogprobs(logprobs[0], _listing(prefix.ids, logprobs, np.arange(wanted))))

    def _drawn(self, values: np.ndarray, u: float) -> Choice:
        """The token that draw `u` chooses: growing prefixes of the canonical order, until one of them settles it."""
        temperature, wanted = self._filters.temperature, self._sampling.logprobs
        total = Normaliser(values, temperature)
        for width in (*self._widths, self._vocab_size):
            prefix = Prefix.of(values, width)
            scaled = scale(prefix.logits, temperature)
            selection = decide(scaled, prefix.present, self._filters, total, u, wanted)
            if selection is not None:
                break
        assert selection is not None, "all present ids settle every draw"
        token = int(prefix.ids[selection.chosen])
        if wanted is None:
            return Choice(token)
        logprobs = _logprobs(scaled, selection.normaliser)
        top = _listing(prefix.ids, logprobs, selection.support[:wanted])
        return Choice(token, TokenLogprobs(logprobs[selection.chosen], top))


def _check(logits: np.ndarray) -> None:
    """Raises LogitsError for NaN and +inf."""
    if logits.max() < np.inf:  # False for NaN, which max hands on
        return
    for bad, name in ((np.isnan(logits), "NaN"), (np.isposinf(logits), "+inf")):
        if bad.any():
            first, count = int(np.argmax(bad)), int(bad.sum())
            raise LogitsError(f"the logits of {count} of {len(logits)} ids are {name}; the first is id {first}")


def _logprobs(scaled: np.ndarray, total: float) -> list[float]:
    """scaled - total, one rounding to float32 each; finite also where that exceeds float32."""
    values: list[float] = np.maximum(scaled.astype(np.float64) - total, -LARGEST).astype(np.float32).tolist()
    return values


def _listing(ids: np.ndarray, logprobs: list[float], places: np.ndarray) -> tuple[tuple[int, float], ...]:
    """(id, log-probability) at the places that exist."""
    return tuple((int(ids[place]), logprobs[place]) for place in places if place < len(ids))
