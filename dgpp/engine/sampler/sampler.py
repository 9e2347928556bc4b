"""The sampler of one request: logits in, a token and its log-probabilities out (spec E-8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.engine.request import Sampling, TokenLogprobs
from dgpp.engine.sampler.candidates import Candidates
from dgpp.engine.sampler.decision import Filters, decide
from dgpp.engine.sampler.normaliser import Normaliser, Total
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
            if self._sampling.logprobs is None:
                return Choice(best)
            choice = self._greedy(Prefix.of(values, max(1, self._sampling.logprobs)), self._total(values))
        else:
            widths = (*self._widths, self._vocab_size)
            choice = self._drawn((Prefix.of(values, width) for width in widths), self._total(values))
        assert choice is not None, "all present ids settle every choice"
        return choice

    @property
    def takes_candidates(self) -> bool:
        """Whether `choose_among` may be asked, when no constraint forbids an id."""
        return self._penalties.none

    @property
    def temperature(self) -> np.float32:
        """The temperature whose normaliser a choice needs, float32 above 0."""
        return np.float32(1) if is_greedy(self._sampling) else self._filters.temperature

    def choose_among(self, candidates: Candidates) -> Choice | None:
        """As `choose` without a mask, from the first ids and the normaliser at `temperature`; None, and nothing is
        drawn, where they do not settle it, and where `choose` would raise."""
        if not candidates.usable:
            return None
        if is_greedy(self._sampling):
            return self._greedy(candidates.prefix, candidates)
        return self._drawn((candidates.prefix,), candidates)

    def _total(self, values: np.ndarray) -> Normaliser:
        return Normaliser(values, self.temperature)

    def accept(self, token: int) -> None:
        """Tells the penalties that `token` was generated."""
        self._penalties.accept(token)

    def _greedy(self, prefix: Prefix, total: Total) -> Choice | None:
        """The most likely id, with the log-probabilities at temperature 1; None when too few are held to list them."""
        wanted = self._sampling.logprobs
        if wanted is None:
            return Choice(int(prefix.ids[0]))
        if wanted > len(prefix.ids) and not prefix.complete:
            return None
        logprobs = _logprobs(prefix.logits, total.exact)
        return Choice(int(prefix.ids[0]), TokenLogprobs(logprobs[0], _listing(prefix.ids, logprobs, np.arange(wanted))))

    def _drawn(self, prefixes: Iterable[Prefix], total: Total) -> Choice | None:
        """The token that the next draw chooses, by the first of growing prefixes that settles it. If none does, nothing
        is drawn."""
        temperature, wanted = self._filters.temperature, self._sampling.logprobs
        u = uniform(self._sampling.seed, self.draws)
        for prefix in prefixes:
            scaled = scale(prefix.logits, temperature)
            selection = decide(scaled, prefix.present, self._filters, total, u, wanted)
            if selection is None:
                continue
            self.draws += 1
            token = int(prefix.ids[selection.chosen])
            if wanted is None:
                return Choice(token)
            logprobs = _logprobs(scaled, selection.normaliser)
            top = _listing(prefix.ids, logprobs, selection.support[:wanted])
            return Choice(token, TokenLogprobs(logprobs[selection.chosen], top))
        return None


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
