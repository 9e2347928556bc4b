"""sample: a seeded text is the same alone, once more, beside any others, and drawn by a notebook's own loop.

Compared are token ids and log-probabilities, over settings that use every part of the sampler.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgpp.engine.request import Engine, FailEvent, Handle, Request, Sampling, TokenEvent
from dgpp.lab.claims.claim import Claim, Pair, Plan
from dgpp.lab.claims.subject import Subject

LISTED = 3
"""Alternatives whose log-probabilities are compared beside the chosen token's."""

SETTINGS = {
    "temperature": Sampling(temperature=1.0, seed=11, logprobs=LISTED),
    "top_p": Sampling(temperature=0.8, top_p=0.9, seed=12, logprobs=LISTED),
    "top_k": Sampling(temperature=1.3, top_k=20, seed=13, logprobs=LISTED),
    "min_p": Sampling(temperature=1.0, min_p=0.02, seed=14, logprobs=LISTED),
    "penalties": Sampling(
        temperature=0.9,
        repetition_penalty=1.2,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        seed=15,
        logprobs=LISTED,
    ),
    "all together": Sampling(
        temperature=0.7,
        top_p=0.95,
        top_k=50,
        min_p=0.01,
        repetition_penalty=1.1,
        presence_penalty=-0.2,
        frequency_penalty=0.1,
        logit_bias=((5, 2.0), (7, -3.0)),
        seed=2**63 + 16,
        logprobs=LISTED,
    ),
    "greedy": Sampling(),
}
WAYS = ("once more", "in company", "by the notebook's loop")


def _plan(s: Subject) -> Plan:
    longest = _prompt_length(s.effort.company) + s.effort.generated
    if longest > s.slot_tokens:
        return Plan.nothing(f"{longest} tokens do not fit the context")
    return Plan(len(SETTINGS) * len(WAYS) * s.effort.generated, lambda: _pairs(s))


def _prompt_length(number: int) -> int:
    """Tokens of the prompt of a neighbour, so that they begin to decode at different times."""
    return 5 + 9 * number


def _pairs(s: Subject) -> Iterator[Pair]:
    prompt, count = s.tokens(12), s.effort.generated
    results: dict[str, list[np.ndarray]] = {}
    engine = s.serve(s.core)
    try:
        for name, sampling in SETTINGS.items():
            request = Request(prompt, count, ignore_eos=True, sampling=sampling)
            alone, again = (_tokens(engine.submit(request)[0]) for _ in range(2))
            results[name] = [alone, again, _in_company(s, engine, request)]
    finally:
        engine.shutdown()
    for name, sampling in SETTINGS.items():
        alone, *others = results[name]
        for way, found in zip(WAYS, [*others, _by_hand(s, prompt, sampling)], strict=True):
            for at in range(count):
                yield Pair(f"{name}, {way}, token {at}", alone[at], found[at])


def _in_company(s: Subject, engine: Engine, request: Request) -> np.ndarray:
    """The tokens of `request` while others, greedy and sampled, arrive before and after it; one of them leaves."""
    others = [
        Request(
            s.tokens(_prompt_length(number), stream=20 + number),
            s.effort.generated,
            ignore_eos=True,
            sampling=Sampling(temperature=number % 3 * 0.6, seed=number),
        )
        for number in range(s.effort.company)
    ]
    middle = len(others) // 2
    before = [engine.submit(other)[0] for other in others[:middle]]
    mine = engine.submit(request)[0]
    after = [engine.submit(other)[0] for other in others[middle:]]
    if after:
        after[-1].cancel()
    tokens = _tokens(mine)
    for handle in [*before, *after]:
        for _ in handle.events():
            pass
    return tokens


def _tokens(handle: Handle) -> np.ndarray:
    """float64 [T, 2 + 2 LISTED]: id and log-probability, then those of the alternatives; NaN where there are none."""
    rows = []
    for event in handle.events():
        if isinstance(event, TokenEvent):
            rows.append(_row(event.token, event.logprobs))
        elif isinstance(event, FailEvent):
            raise RuntimeError(f"the engine failed: {event.message}")
    return np.array(rows)


def _by_hand(s: Subject, prompt: tuple[int, ...], sampling: Sampling) -> np.ndarray:
    fields = {name: getattr(sampling, name) for name in Sampling.__dataclass_fields__}
    text = s.model.generate(prompt, s.effort.generated, ignore_eos=True, **fields)
    logprobs = text.logprobs or (None,) * len(text.ids)
    return np.array([_row(token, entry) for token, entry in zip(text.ids, logprobs, strict=True)])


def _row(token: int, logprobs: object) -> list[float]:
    numbers = [float(token)]
    if logprobs is not None:
        numbers += [logprobs.logprob, *(value for pair in logprobs.top for value in pair)]  # type: ignore[attr-defined]
    return numbers + [float("nan")] * (2 + 2 * LISTED - len(numbers))


CLAIM = Claim("sample", _plan)
