"""What a model family is: its config, its abstract tree, its forward, and its releases."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.layers.ngram import NgramTable
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
    beside the weights, named with `{layer}` for the layers. `without` is an expression for modules that it leaves to
    another release; empty for a complete one.
    """

    name: str
    config: Mapping[str, Any]
    shards: int = 1
    formats: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    scalars: tuple[str, ...] = ()
    without: str = ""


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
class NgramSource:
    """A family's table of n-grams, as far as an engine needs it to leave the table in files.

    `path` is its place in the tree, `beside` those of the integers that are stored with it, and `table(c)` the hash of
    a config, None for one without a table.
    """

    path: str
    beside: tuple[str, ...]
    table: Callable[[Any], NgramTable | None]


@dataclass(frozen=True)
class Supports:
    """Which of the engine's model options a family has; the names are those of the options.

    `dense_weights` and `mtp_expert_format` are expressions, found in the paths of the tensors that an option is about
    (a path without the layers of a split stack); empty where the family does not have the option. `rope_scaling` says
    that `config.rope` and `config.max_position_embeddings` may be scaled.
    """

    dense_weights: str = ""
    mtp_expert_format: str = ""
    ngram_table: NgramSource | None = None
    rope_scaling: bool = False


@dataclass(frozen=True)
class Family:
    """One model family. The functions are those of its module, which reads top to bottom.

    `config(raw)` is the frozen config of a raw config.json and raises ConfigError.
    `abstract(c)` is the tree of its tensors; `tied(c)` the specs of tensors that read another one's data.
    `constants(c, positions, world)` and `state(c, world)` describe what stands beside the weights on each rank.
    `sites(c)` are the activations that `forward` can return, each with the numbers of the layers that have it; none
    for one that is not inside a layer.
    `kinds(c)` is the kind of every layer, `enter(c, weights, rows)` what enters the first, bf16 [R, ...], and `halves`
    are the parts of a layer in their order: `half(c, kind, w, layer, h, state, constants, rows, world, kernels, taps)`
    is (h, state), where `w` are the weights of the layers.
    `forward(c, weights, constants, rows, state, world, kernels, taps)` is (hidden [R, D] bf16, state).
    `logits(c, weights, hidden, used, world, kernels)` is [R, V] float32, the same on every rank.
    `supports` says which options of the engine it has.
    """

    name: str
    architectures: tuple[str, ...]
    config: Callable[[Mapping[str, Any]], Any]
    abstract: Callable[[Any], SpecTree]
    tied: Callable[[Any], dict[str, tuple[str, TensorSpec]]]
    constants: Callable[[Any, int, int], Constants]
    state: Callable[[Any, int], StateSpecs]
    sites: Callable[[Any], dict[str, tuple[int, ...]]]
    kinds: Callable[[Any], tuple[Hashable, ...]]
    enter: Callable[..., Any]
    halves: Mapping[str, Callable[..., Any]]
    forward: Callable[..., Any]
    logits: Callable[..., Any]
    releases: Mapping[str, Release] = field(default_factory=dict)
    draft: Draft | None = None
    supports: Supports = Supports()

    def tree(self, config: Any, draft: bool = True) -> SpecTree:
        """The tree of all tensors, with those of the prediction layer under "mtp" if there are any and `draft`."""
        tree = self.abstract(config)
        layer = self.draft.abstract(config) if self.draft and draft else {}
        return {**tree, "mtp": layer} if layer else tree
