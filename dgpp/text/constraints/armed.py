"""The constraint of one whole answer: reasoning, then content or tool calls (spec/api.md §7.2, §7.3, §8).

Reasoning is free. Content is free, or follows a grammar from its first token. In free text, and in reasoning that was
left open, what opens a tool call starts the grammar of the calls (cases L8, L9); it holds until they are complete.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dgpp.text.constraints.errors import ConstraintFailed
from dgpp.text.constraints.matcher import Grammar, Walk
from dgpp.text.constraints.plan import Thinking
from dgpp.text.constraints.trigger import Tail, Trigger
from dgpp.text.constraints.vocabulary import TokenVocabulary

Phase = Literal["thinking", "free", "content", "calls", "over"]


@dataclass(frozen=True)
class Shape:
    """A compiled plan, shared by the constraints of all its continuations.

    `content` are the grammars of which the content follows one, from its start (none: it is free). `calls` is the
    grammar that begins where the trigger is seen, `forced` says that such calls are the answer's end, `forbidden` that
    the trigger must not come. `call_end` is the only id that ends an answer whose last part is calls it owed.
    """

    vocabulary: TokenVocabulary
    thinking: Thinking | None = None
    content: tuple[Grammar, ...] = ()
    trigger: Trigger | None = None
    calls: Grammar | None = None
    last: bool = False  # nothing follows the calls
    owed: bool = False  # the calls are what the content's grammar asks for
    forbidden: bool = False
    call_end: int | None = None
    lead: bytes = b""
    known: dict[int, list[int]] = field(default_factory=dict, compare=False)

    def barred(self, said: int) -> list[int]:
        """Ids that may not follow in free text where so many bytes of the opener have been said: those that would
        open a call where none may be, or one that its grammar does not take."""
        if said not in self.known:
            self.known[said] = self._barred(said)
        return self.known[said]

    def _barred(self, said: int) -> list[int]:
        assert self.trigger is not None
        if self.trigger.id is not None:
            return [self.trigger.id] if self.forbidden else []
        completing = self.vocabulary.completing(self.trigger.before)[said]
        if self.forbidden:
            return [id for id, _ in completing]
        assert self.calls is not None
        return [id for id, rest in completing if rest and not self.trigger.feed(self.calls.walk(), rest)]


class Armed:
    """The state machine over the tokens of one answer (the engine's Constraint).

    `allowed()` is a pure function of the tokens accepted so far. Its arrays are read-only and are not kept.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._walks: list[Walk] = []
        self._phase: Phase = "free"
        self._tail = Tail(shape.trigger) if shape.trigger is not None else None
        self._forced: deque[int] = deque()
        self._thought = 0
        self._may_think = False
        self._failure: str | None = None
        self._mask: np.ndarray | None = None
        self._known = False
        if shape.thinking is not None and shape.thinking.inside:
            self._think()
        else:
            self._begin()
            self._may_think = shape.thinking is not None and shape.thinking.opener is not None

    def copy(self) -> Armed:
        """An independent constraint at the same place: the masks of drafted tokens come from such a copy (case J6)."""
        twin = copy.copy(self)
        twin._walks = [walk.copy() for walk in self._walks]
        twin._tail = self._tail.copy() if self._tail is not None else None
        twin._forced = deque(self._forced)
        return twin

    def allowed(self) -> np.ndarray | None:
        """bool [V], or None when every id may follow. Raises ConstraintFailed."""
        self._check()
        if not self._known:
            try:
                self._mask = self._find()
                if self._mask is not None:
                    self._mask.setflags(write=False)
            except ConstraintFailed as failure:
                raise self._fail(str(failure)) from None
            self._known = True
        return self._mask

    def accept(self, token: int) -> None:
        """Goes on past `token`. Raises ConstraintFailed for one that is not allowed, and ever after."""
        self._check()
        if not self._permits(token):
            raise self._fail(f"token {token} is not allowed here")
        self._known = False
        try:
            self._advance(token)
        except ConstraintFailed as failure:
            raise self._fail(str(failure)) from None

    def _find(self) -> np.ndarray | None:
        if self._forced:
            return self._only([self._forced[0]])
        match self._phase:
            case "over":
                return self._only(self._ends())
            case "calls":
                return self._walks[0].mask()
            case "content":
                return self._content_mask()
        barred = self._barred()
        if self._phase == "thinking" and self._shape.content:
            barred = [*barred, *self._shape.vocabulary.eos]
        if not barred:
            return None
        mask = self._shape.vocabulary.real.copy()
        mask[barred] = False
        return mask

    def _content_mask(self) -> np.ndarray:
        first, *others = self._walks
        mask = first.mask().copy()
        for walk in others:
            mask |= walk.mask()
        if any(walk.complete for walk in self._walks):
            mask[self._ends()] = True
        if self._may_think and (thinking := self._shape.thinking) is not None and thinking.opener is not None:
            mask[thinking.opener] = True
        if not mask.any():
            raise ConstraintFailed("the grammar allows nothing more, and its text is not complete")
        return mask

    def _permits(self, token: int) -> bool:
        """Whether `allowed()` would contain `token`, without making the whole mask."""
        vocabulary = self._shape.vocabulary
        if not 0 <= token < vocabulary.vocab_size:
            return False
        if self._known:
            return self._mask is None or bool(self._mask[token])
        if self._forced:
            return token == self._forced[0]
        if self._opens_thinking(token):
            return True
        if self._phase == "over":
            return token in self._ends()
        if self._phase in ("calls", "content"):
            if token in vocabulary.eos:
                return any(walk.complete for walk in self._walks) and token in self._ends()
            return any(walk.takes(token) for walk in self._walks)
        if self._phase == "thinking" and self._shape.content and token in vocabulary.eos:
            return False
        return token not in self._barred()

    def _advance(self, token: int) -> None:
        shape = self._shape
        forced = bool(self._forced)
        if forced:
            self._forced.popleft()
        if self._opens_thinking(token):
            return self._think()
        if self._phase == "thinking":
            return self._advance_thinking(token)
        if forced:
            return None  # the rest of a hand-over is not part of the content
        if self._may_think and shape.vocabulary.token_bytes(token).strip():
            self._may_think = False
        if token in shape.vocabulary.eos:
            if self._phase == "content":
                self._phase = "over"
            return None
        if self._phase == "free":
            self._look_for_calls(token)
        elif self._phase in ("calls", "content"):
            if len(self._walks) > 1:
                self._walks = [walk for walk in self._walks if walk.takes(token)]
            for walk in self._walks:
                walk.accept(token)
            if self._phase == "calls" and self._walks[0].complete:
                self._end_calls(token)
        return None

    def _advance_thinking(self, token: int) -> None:
        thinking = self._shape.thinking
        assert thinking is not None
        if token == thinking.closer:
            return self._begin()
        trigger = self._shape.trigger
        if trigger is not None and trigger.id is not None and not self._forced and self._look_for_calls(token):
            return None
        self._thought += 1
        if self._thought == thinking.budget:
            self._forced.extend(thinking.hand_over)
        return None

    def _look_for_calls(self, token: int) -> bool:
        """Arms the grammar of calls where `token` completes their opener (never where they are forbidden)."""
        shape = self._shape
        if self._tail is None or (rest := self._tail.add(token, shape.vocabulary)) is None or shape.calls is None:
            return False
        assert shape.trigger is not None
        walk = shape.calls.walk()
        if not shape.trigger.feed(walk, rest):
            raise ConstraintFailed("the grammar of tool calls does not begin with their opener")
        self._walks = [walk]
        self._phase = "content" if shape.content else "calls"
        self._forced.clear()
        return True

    def _end_calls(self, token: int) -> None:
        self._phase = "over" if self._shape.last else "free"
        self._walks = []
        if self._tail is not None:
            self._tail.add(token, self._shape.vocabulary)

    def _think(self) -> None:
        thinking = self._shape.thinking
        assert thinking is not None
        self._phase = "thinking"
        self._walks = []
        self._may_think = False
        if thinking.budget == 0:
            self._forced.extend(thinking.hand_over)

    def _begin(self) -> None:
        """The content begins."""
        self._walks = [grammar.walk() for grammar in self._shape.content]
        self._phase = "content" if self._walks else "free"

    def _opens_thinking(self, token: int) -> bool:
        thinking = self._shape.thinking
        return self._may_think and not self._forced and thinking is not None and token == thinking.opener

    def _barred(self) -> list[int]:
        if self._tail is None:
            return []
        return self._shape.barred(self._tail.said)

    def _ends(self) -> list[int]:
        """Ids that may end the answer once it is complete."""
        shape = self._shape
        if shape.call_end is not None and (shape.owed or shape.last):
            return [shape.call_end]
        return sorted(shape.vocabulary.eos)

    def _only(self, ids: list[int]) -> np.ndarray:
        mask = np.zeros(self._shape.vocabulary.vocab_size, dtype=bool)
        mask[ids] = True
        return mask

    def _check(self) -> None:
        if self._failure is not None:
            raise ConstraintFailed(self._failure)

    def _fail(self, reason: str) -> ConstraintFailed:
        self._failure = reason
        return ConstraintFailed(reason)
