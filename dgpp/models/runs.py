"""Stacked weights of layers whose formats differ: the runs of layers that one scan can go through."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from dgpp.formats import Weight

BOUNDS = re.compile(r"(\d+):(\d+)")


def layer_runs(weights: Mapping[str, Any], layers: int) -> Iterator[tuple[range, dict[str, Any]]]:
    """(layers, their weights) for every run of layers in which each weight is one stack; mostly a single run.

    `weights` is the subtree of a model's layers, in which a stack may be split: a subtree with keys like "0:56". In
    what a run gets, all are whole; `Weight.place` is where a layer is in them. A stack need not have all layers (that
    of the attention of every fourth one), so a run may get stacks that its layers do not use.
    """
    borders = sorted({0, layers, *_borders(weights)})
    for start, stop in pairwise(borders):
        yield range(start, stop), weights_of_layer(weights, start)


def weights_of_layer(weights: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """`weights` with every split stack replaced by the part that holds `layer`, or else by the last one before it."""
    return {name: node if isinstance(node, Weight) else _holding(node, layer) for name, node in weights.items()}


def _holding(node: Mapping[str, Any], layer: int) -> Any:
    starts = _starts(node)
    if not starts:
        return weights_of_layer(node, layer)
    return next((node[key] for start, key in reversed(starts) if start <= layer), node[starts[0][1]])


def _starts(node: Mapping[str, Any]) -> list[tuple[int, str]]:
    """(number of the first layer, key) of the parts of a split stack; empty for another subtree."""
    return sorted((int(match[1]), key) for key in node if (match := BOUNDS.fullmatch(key)))


def _borders(weights: Mapping[str, Any]) -> Iterator[int]:
    """The numbers of layers at which a part of a stack follows another one."""
    for node in weights.values():
        if not isinstance(node, Weight):
            starts = _starts(node)
            yield from (start for start, _ in starts[1:])
            if not starts:
                yield from _borders(node)
