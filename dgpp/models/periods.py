"""Walking through layers of several kinds: a scan over every stretch of layers whose kinds repeat.

A model's layers come in kinds (a recurrent mixer or attention, with or without a table), mostly in a fixed rhythm. One
scan takes a whole rhythm at a step, so that the compiled program holds each kind a few times and not each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats.arrays import LONGEST_RHYTHM
from dgpp.layers.residual import Residual, settled
from dgpp.layers.taps import Taps
from dgpp.models.runs import layer_runs

Body = Callable[[Any, Mapping[str, Any], jax.Array, Any, Taps], Any]
"""(kind, weights, number of the layer, carry, taps) -> carry."""


@dataclass(frozen=True)
class Stretch:
    """`count` repetitions of `kinds`, from layer `start` on, whose weights are whole stacks."""

    start: int
    kinds: tuple[Hashable, ...]
    count: int
    weights: dict[str, Any]

    @property
    def stop(self) -> int:
        """The layer after the last."""
        return self.start + len(self.kinds) * self.count


def through_layers(
    weights: Mapping[str, Any], kinds: Sequence[Hashable], body: Body, carry: Any, taps: Taps, rhythms: int = 1
) -> Any:
    """`carry` after `body` was applied to every layer in turn. `weights` is the subtree of a model's layers, and
    `kinds` has one entry per layer; a kind is known when the program is traced, a layer's number is not. A step of a
    scan takes up to `rhythms` repetitions."""
    runs: list[tuple[range, dict[str, jax.Array]]] = []
    for stretch in stretches(weights, kinds, rhythms):

        def step(carry: Any, first: jax.Array, stretch: Stretch = stretch) -> tuple[Any, list[dict[str, jax.Array]]]:
            seen = []
            for place, kind in enumerate(stretch.kinds):
                inner = taps.scoped()
                carry = body(kind, stretch.weights, first + place, carry, inner)
                seen.append(inner.seen)
            # What a scan carries from step to step is rows.
            return jax.tree.map(settled, carry, is_leaf=lambda part: isinstance(part, Residual)), seen

        period = len(stretch.kinds)
        firsts = jnp.arange(stretch.start, stretch.stop, period, dtype=jnp.int32)
        carry, seen = jax.lax.scan(step, carry, firsts)
        runs += [(range(stretch.start + place, stretch.stop, period), one) for place, one in enumerate(seen)]
    taps.add_layers(runs)
    return carry


def stretches(weights: Mapping[str, Any], kinds: Sequence[Hashable], rhythms: int = 1) -> Iterator[Stretch]:
    """The stretches of a model in order: the longest repetition from each layer on, or the layer alone. Up to `rhythms`
    repetitions, as many as divide all of them evenly, count as one."""
    for run, held in layer_runs(weights, len(kinds)):
        start = run.start
        while start < run.stop:
            best = Stretch(start, (kinds[start],), 1, held)
            for period in range(1, min(LONGEST_RHYTHM, (run.stop - start) // 2) + 1):
                rhythm, count = tuple(kinds[start : start + period]), 1
                while tuple(kinds[start + count * period : min(run.stop, start + (count + 1) * period)]) == rhythm:
                    count += 1
                if count > 1 and count * period > len(best.kinds) * best.count:
                    best = Stretch(start, rhythm, count, held)
            taken = max(i for i in range(1, min(rhythms, best.count) + 1) if best.count % i == 0)
            yield replace(best, kinds=best.kinds * taken, count=best.count // taken)
            start = best.stop
