"""The next token of every request of a step: the device's pick, or what a sampler draws from the masked logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dgpp.engine.allowed import Allowed, ConstraintError
from dgpp.engine.core import StepResult
from dgpp.engine.request import FailEvent, Request, TokenEvent
from dgpp.engine.sampler import Candidates, Choice, LogitsError, Sampler, needs_logits


class Chooser:
    """How the tokens of one request are chosen. `position` is that of the next one.

    Raises ValueError for settings that the sampler cannot use.
    """

    def __init__(self, request: Request, vocab_size: int) -> None:
        self.position = len(request.prompt)
        self._allowed = Allowed(request, vocab_size) if Allowed.needed(request) else None
        self._picks = not needs_logits(request.sampling)  # the device's pick is the token wherever nothing is masked
        self._sampler: Sampler | None = None
        if self._allowed is not None or not self._picks:
            self._sampler = Sampler(request.sampling, request.prompt, vocab_size)

    def mask(self) -> np.ndarray | None:
        """Which ids may come next; None for all. Raises ConstraintError."""
        return None if self._allowed is None else self._allowed.mask()

    @property
    def takes_every_pick(self) -> bool:
        """Whether every token is the device's pick, whatever comes before it."""
        return self._picks and self._allowed is None

    def takes_pick(self, mask: np.ndarray | None) -> bool:
        """Whether the device's pick is the token, and the logits are not needed."""
        return self._picks and mask is None

    def temperature(self, mask: np.ndarray | None) -> np.float32 | None:
        """The temperature of the candidates that the token may be chosen among; None where the logits are needed."""
        if mask is not None or self._sampler is None or not self._sampler.takes_candidates:
            return None
        return self._sampler.temperature

    def pick(self, pick: int) -> TokenEvent:
        """The device's pick as the next token. Raises LogitsError and ConstraintError."""
        if pick < 0:
            raise LogitsError("a logit is NaN")
        return self._next(TokenEvent(pick))

    def choose_among(self, candidates: Candidates) -> TokenEvent | None:
        """The next token where these settle it. Raises ConstraintError."""
        assert self._sampler is not None
        choice = self._sampler.choose_among(candidates)
        return None if choice is None else self._chosen(choice)

    def choose(self, logits: np.ndarray, mask: np.ndarray | None) -> TokenEvent:
        """The next token. Raises LogitsError and ConstraintError."""
        assert self._sampler is not None
        return self._chosen(self._sampler.choose(logits, mask))

    def _chosen(self, choice: Choice) -> TokenEvent:
        assert self._sampler is not None
        self._sampler.accept(choice.token)
        return self._next(TokenEvent(choice.token, choice.logprobs))

    def _next(self, event: TokenEvent) -> TokenEvent:
        if self._allowed is not None:
            self._allowed.accept(event.token)
        self.position += 1
        return event


def _candidates(
    choosers: Sequence[Chooser], masks: Sequence[np.ndarray | ConstraintError | None], result: StepResult
) -> dict[int, Candidates]:
    """The candidates of the rows whose choosers may decide from them, by row."""
    temperatures: dict[int, np.float32] = {}
    for row, (chooser, mask) in enumerate(zip(choosers, masks, strict=True)):
        if not isinstance(mask, ConstraintError) and not chooser.takes_pick(mask):
            temperature = chooser.temperature(mask)
            if temperature is not None:
                temperatures[row] = temperature
    if result.likeliest is None or not temperatures:
        return {}
    likeliest = result.likeliest(temperatures)
    return {row: Candidates.of(likeliest, row, temperature) for row, temperature in temperatures.items()}


def choose(choosers: Sequence[Chooser], result: StepResult) -> list[TokenEvent | FailEvent]:
    """The next token of each request, whose rows of `result` are in the same order.

    Logits that are not a number, and a constraint that cannot go on, end their own request and nobody else's.
    """
    picks = result.picks  # waits for the step, also where no row of it is wanted
    masks: list[np.ndarray | ConstraintError | None] = []
    for chooser in choosers:
        try:
            masks.append(chooser.mask())
        except ConstraintError as error:
            masks.append(error)
    candidates = _candidates(choosers, masks, result)
    events: list[TokenEvent | FailEvent] = []
    for row, (chooser, mask) in enumerate(zip(choosers, masks, strict=True)):
        try:
            if isinstance(mask, ConstraintError):
                raise mask
            if chooser.takes_pick(mask):
                events.append(chooser.pick(int(picks[row])))
                continue
            event = chooser.choose_among(candidates[row]) if row in candidates else None
            events.append(event or chooser.choose(np.asarray(result.logits)[row], mask))
        except LogitsError as error:
            events.append(
                FailEvent("engine_failure", f"no token can be chosen at position {chooser.position}: {error}")
            )
        except ConstraintError as error:
            reason = f"{error} at position {chooser.position}: {error.__cause__}"
            events.append(FailEvent("constraint_failed", reason))
    return events
