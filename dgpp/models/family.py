"""What a model family is: its config, its abstract tree, its forward, and its releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.models.state import StateSpecs


class ConfigError(ValueError):
    """A config.json that this family cannot run; the message names the field and what is supported."""


@dataclass(frozen=True)
class Release:
    """One published layout of a family in miniature, for the fixture writer.

    `config` is its config.json; `shards` is the number of safetensors files (1: a single file without an index).
    `formats` says how its modules are stored: the first expression that is found in a name gives the tag, and without
    one a module is as the family's tree has it. `files` are further JSON files by name. `optional` are fields of
    formats that a release may have or not ("g_idx", "input_scale") and this one has. `scalars` are float32 tensors []
    beside the weights, named with `{layer}` for the layers.
    """

    name: str
    config: Mapping[str, Any]
    shards: int = 1
    formats: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Constants:
    """Arrays a forward needs beside the checkpoint's: `replicated` ones, and `ranked` ones of shape [W, ...] of which
    each rank sees its own row."""

    replicated: dict[str, np.ndarray]
    ranked: dict[str, np.ndarray]


@dataclass(frozen=True)
class Draft:
    """A family's own prediction layer: what drafts the tokens after the next one.

    `abstract(c)` is the tree of its tensors, empty for a model without one, and stands under "mtp" beside the main
    model's; `state(c, world)` is what it remembers.
    `forward(c, weights, hidden, token, constants, rows, state, world, kernels, taps)` is (what the head reads, bf16
    [R, D]; what it reads itself for a longer chain; state), from what `hidden(...)`, called like the main model's
    forward, returned for the rows, and the token that follows each.
    """

    abstract: Callable[[Any], SpecTree]
    state: Callable[[Any, int], StateSpecs]
    forward: Callable[..., Any]
    hidden: Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """One model family. The functions are those of its module, which reads top to bottom.

    `config(raw)` is the frozen config of a raw config.json and raises ConfigError.
    `abstract(c)` is the tree of its tensors; `tied(c)` the specs of tensors that read another one's data.
    `constants(c, positions, world)` and `state(c, world)` describe what stands beside the weights on each rank.
    `sites(c)` are the activations that `forward` can return, each with the numbers of the layers that have it; none
    for one that is not inside a layer.
    `forward(c, weights, constants, rows, state, world, kernels, taps)` is (hidden [R, D] bf16, state).
    `logits(c, weights, hidden, used, world, kernels)` is [R, V] float32, the same on every rank.
    """

    name: str
    architectures: tuple[str, ...]
    config: Callable[[Mapping[str, Any]], Any]
    abstract: Callable[[Any], SpecTree]
    tied: Callable[[Any], dict[str, tuple[str, TensorSpec]]]
    constants: Callable[[Any, int, int], Constants]
    state: Callable[[Any, int], StateSpecs]
    sites: Callable[[Any], dict[str, tuple[int, ...]]]
    forward: Callable[..., Any]
    logits: Callable[..., Any]
    releases: Mapping[str, Release] = field(default_factory=dict)
    draft: Draft | None = None

    def tree(self, config: Any, draft: bool = True) -> SpecTree:
        """The tree of all tensors, with those of the prediction layer under "mtp" if there are any and `draft`."""
        tree = self.abstract(config)
        layer = self.draft.abstract(config) if self.draft and draft else {}
        return {**tree, "mtp": layer} if layer else tree
