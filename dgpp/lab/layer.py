"""One layer by hand: the parts of the forward as functions of the residual stream, with a small state of their own.

    layer = m.layer(3)
    rows = layer.rows(ids)                # one sequence, from position 0
    h = layer.mixer(h, rows)              # h bfloat16 [T, ...]: what comes in is what layer 2 gave out
    h = layer.mlp(h, rows)                # or both, and whatever else the layer has: h = layer(h, rows)

The functions are those of the family's module with its weights put in; compiled alone they give the bits that they
give inside the whole step. `lone_layer` is one of a model of which nothing else is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.engine.batch import Segment, build
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import Kernels, default
from dgpp.kernels.rows import Phase, Rows
from dgpp.kernels.stored import stored_as
from dgpp.layers.residual import settled
from dgpp.layers.taps import Taps
from dgpp.models import Family, family_of
from dgpp.models.runs import weights_of_layer
from dgpp.models.state import Room, StateSpecs, stored_specs
from dgpp.world import Single

if TYPE_CHECKING:
    from dgpp.lab.model import Model, Prompt


@dataclass
class HandRows:
    """A batch of one sequence from position 0, and an empty state of its size. `state` moves with every use."""

    rows: Rows
    state: dict[str, jax.Array]


class Blocks:
    """The parts of a family's layers, compiled for a world of 1; layers of one kind run the same programs."""

    def __init__(self, family: Family, config: Any, kernels: Kernels, positions: int, page: int) -> None:
        """For sequences of up to `positions` tokens, in pages of `page`."""
        self.family, self.config, self.page = family, config, page
        self.kinds = family.kinds(config)
        self.specs: StateSpecs = stored_specs(family.state(config, 1), kernels.stored)
        constants = family.constants(config, positions, 1)
        ranked = {name: array[0] for name, array in constants.ranked.items()}
        self.constants = {name: jnp.asarray(array) for name, array in (constants.replicated | ranked).items()}
        self._kernels = kernels
        self._compiled: dict[tuple[str, Any], Any] = {}

    def run(self, name: str, layer: int, weights: Mapping[str, Any], h: Any, rows: HandRows) -> jax.Array:
        """What part `name` of layer number `layer` makes of h, bfloat16 [T, ...]; `rows.state` moves on."""
        kind = self.kinds[layer]
        if (name, kind) not in self._compiled:
            self._compiled[name, kind] = jax.jit(partial(self._part, name, kind))
        out: jax.Array
        part = self._compiled[name, kind]
        out, rows.state = part(weights, jnp.int32(layer), jnp.asarray(h), rows.state, self.constants, rows.rows)
        return out

    def _part(self, name: str, kind: Any, w: Any, layer: Any, h: Any, state: Any, constants: Any, rows: Any) -> Any:
        half = self.family.halves[name]
        with stored_as(self._kernels.stored):
            h, state = half(self.config, kind, w, layer, h, state, constants, rows, Single(), self._kernels, Taps())
            return settled(h), state

    def rows(self, tokens: Sequence[int]) -> HandRows:
        """The rows of T tokens, one sequence from position 0, with an empty state that holds them."""
        pages = -(-len(tokens) // self.page)
        table = np.arange(pages, dtype=np.int32)[None]
        rows = build([Segment(0, 0, tuple(tokens), Phase.PREFILL)], table, len(tokens), 1).rows
        room = Room(pages, self.page, slots=1, verify_rows=1)
        state = {name: jnp.zeros(spec.allocation(room), spec.dtype) for name, spec in self.specs.items()}
        return HandRows(jax.tree.map(jnp.asarray, rows), state)


@dataclass(frozen=True)
class LoneLayer:
    """Layer `index` of a model, with the stacks of weights in which its own are."""

    blocks: Blocks
    index: int
    weights: Mapping[str, Any]

    def __call__(self, h: Any, rows: HandRows) -> jax.Array:
        """What the whole layer makes of h, bfloat16 [T, ...]."""
        for name in self.blocks.family.halves:
            h = self.part(name, h, rows)
        out: jax.Array = h
        return out

    def part(self, name: str, h: Any, rows: HandRows) -> jax.Array:
        """What one part of the layer makes of h, bfloat16 [T, ...]. Raises KeyError listing the parts there are."""
        family = self.blocks.family
        if name not in family.halves:
            raise KeyError(f"a layer of {family.name} has {', '.join(family.halves)}, but no {name!r}")
        return self.blocks.run(name, self.index, self.weights, h, rows)

    def mixer(self, h: Any, rows: HandRows) -> jax.Array:
        """h + attention, or a recurrent mixer, of norm(h): bfloat16 [T, ...]."""
        return self.part("mixer", h, rows)

    def mlp(self, h: Any, rows: HandRows) -> jax.Array:
        """h + MLP, or a mixture of experts, of norm(h): bfloat16 [T, ...]."""
        return self.part("mlp", h, rows)

    def rows(self, prompt: Sequence[int]) -> HandRows:
        """The rows of T tokens, one sequence from position 0, with an empty state that holds them."""
        return self.blocks.rows(prompt)


@dataclass(frozen=True)
class Layer(LoneLayer):
    """A layer of a loaded model."""

    model: Model

    def rows(self, prompt: Prompt) -> HandRows:
        """The rows of a prompt of T tokens, one sequence from position 0, with an empty state that holds them."""
        return self.blocks.rows(self.model.ids(prompt))

    def embed(self, rows: HandRows) -> jax.Array:
        """What enters layer 0: the embeddings of the rows' tokens, bfloat16 [T, ...]."""
        entering: jax.Array = self.model.family.enter(self.model.config, self.model.placed, rows.rows)
        return entering


def layer_of(model: Model, blocks: Blocks, index: int) -> Layer:
    """Layer `index` of a loaded model."""
    return Layer(blocks, index, weights_of_layer(model.placed["layers"], index), model)


def blocks_of(model: Model) -> Blocks:
    """The parts of a loaded model's layers. Raises ValueError for a model that is spread over a world."""
    core = model.core
    if core.settings.world != 1:
        raise ValueError("a layer by hand needs a world of 1; load the model once more with world=1")
    return Blocks(model.family, model.config, core.kernels, core.position_ceiling, core.settings.page_tokens)


def lone_layer(
    directory: Path | str,
    index: int,
    positions: int = 1024,
    page_tokens: int = CoreSettings.page_tokens,
    kernels: Kernels | None = None,
) -> LoneLayer:
    """Layer `index` of the checkpoint in `directory`, of which only this layer's tensors are read.

    `positions` bounds the sequences it can be fed; `page_tokens` is a setting of the numerics. Raises CheckpointError
    as `load_weights` does, and IndexError for a layer that is not there.
    """
    checkpoint = Checkpoint.open(directory)
    family = family_of(checkpoint.config)
    config = family.config(checkpoint.config)
    if not 0 <= index < config.layers:
        raise IndexError(f"layer {index} is not one of the {config.layers} layers")
    tree = resolve_tree(family.abstract(config), checkpoint)["layers"]
    assert isinstance(tree, dict)
    weights = load_weights(_with_layer(tree, index), checkpoint)
    blocks = Blocks(family, config, kernels or default(), positions, page_tokens)
    return LoneLayer(blocks, index, weights_of_layer(weights, index))


def _with_layer(tree: SpecTree, index: int) -> SpecTree:
    """The stacks of `tree` that hold layer `index`, cut down to it: no other layer's tensors need be there."""
    out: SpecTree = {}
    for name, node in tree.items():
        if isinstance(node, TensorSpec):
            if index in node.numbers:
                out[name] = replace(node, numbers=(index,))
        elif isinstance(node, dict) and (inside := _with_layer(node, index)):
            out[name] = inside
    return out
