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
    what a run gets, all are whole; `Weight.place` is where a layer is in them.
    """
    borders = sorted({0, layers, *_borders(weights)})
    for start, stop in pairwise(borders):
        yield range(start, stop), weights_of_layer(weights, start)


def weights_of_layer(weights: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """`weights` with every split stack replaced by the part that holds `layer`."""
    return {name: node if isinstance(node, Weight) else _holding(node, layer) for name, node in weights.items()}


def _holding(node: Mapping[str, Any], layer: int) -> Any:
    parts = [(BOUNDS.fullmatch(key), part) for key, part in node.items()]
    for match, part in parts:
        if match and int(match[1]) <= layer < int(match[2]):
            return part
    return weights_of_layer(node, layer)


def _borders(weights: Mapping[str, Any]) -> Iterator[int]:
    for key, node in weights.items():
        if match := BOUNDS.fullmatch(key):
            yield from map(int, match.groups())
        elif not isinstance(node, Weight):
            yield from _borders(node)
