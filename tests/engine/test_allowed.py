"""Masks of one request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dgpp.engine.allowed import Allowed, ConstraintError
from dgpp.engine.request import FailEvent, FinishEvent, Request, TokenEvent
from dgpp.engine.scripted import ScriptedEngine

V = 512
EOS = frozenset({7, 9})


class Even:
    """Even ids only, and after `most` of them an end of sequence."""

    def __init__(self, most: int = 99) -> None:
        self.taken: list[int] = []
        self._most = most

    def allowed(self) -> np.ndarray:
        mask = np.arange(V) % 2 == 0
        if len(self.taken) >= self._most:
            mask[:] = False
            mask[list(EOS)] = True
        return mask

    def accept(self, token: int) -> None:
        self.taken.append(token)


class Broken:
    """Fails at its third token."""

    def __init__(self) -> None:
        self._count = 0

    def allowed(self) -> None:
        if self._count == 2:
            raise RuntimeError("too costly")

    def accept(self, token: int) -> None:
        self._count += 1


def request(**changes: object) -> Request:
    return replace(Request((1, 2), 8, EOS), **changes)  # type: ignore[arg-type]


def test_nothing_is_denied_without_a_constraint_and_a_least_length() -> None:
    assert not Allowed.needed(request())
    assert not Allowed.needed(request(min_tokens=3, ignore_eos=True))
    assert Allowed.needed(request(min_tokens=3))
    assert Allowed.needed(request(constraint=Even))


def test_no_end_before_the_least_length() -> None:
    allowed = Allowed(request(min_tokens=2), V)
    for _ in range(2):
        mask = allowed.mask()
        assert mask is not None
        assert not mask[list(EOS)].any()
        assert mask.sum() == V - len(EOS)
        allowed.accept(1)
    assert allowed.mask() is None


def test_a_constraint_that_is_complete_ends_whatever_the_least_length() -> None:
    allowed = Allowed(request(min_tokens=4, constraint=lambda: Even(1)), V)
    allowed.accept(2)
    mask = allowed.mask()
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == sorted(EOS)


def test_a_failing_constraint_says_so() -> None:
    allowed = Allowed(request(constraint=Broken), V)
    for _ in range(2):
        assert allowed.mask() is None
        allowed.accept(1)
    with pytest.raises(ConstraintError):
        allowed.mask()


def test_each_continuation_has_a_constraint_of_its_own() -> None:
    made: list[Even] = []

    def make() -> Even:
        made.append(Even())
        return made[-1]

    engine = ScriptedEngine([3, 4, 5])
    try:
        for handle in engine.submit(request(constraint=make), count=2):
            tokens = [event.token for event in handle.events() if isinstance(event, TokenEvent)]
            assert tokens[:3] == [0, 4, 0]  # an id that is denied is replaced by the first that is not
    finally:
        engine.shutdown()
    assert len(made) == 2


def test_J5_a_failing_constraint_ends_its_own_request_alone() -> None:
    engine = ScriptedEngine([3] * 8)
    try:
        (broken,) = engine.submit(request(constraint=Broken))
        (other,) = engine.submit(request())
        last = list(broken.events())[-1]
        assert isinstance(last, FailEvent)
        assert (last.code, "too costly" in last.message) == ("constraint_failed", True)
        assert list(other.events())[-1] == FinishEvent("length")
    finally:
        engine.shutdown()
