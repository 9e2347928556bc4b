"""One layer by hand: the blocks of the forward as functions of the residual stream, with a small cache of their own.

    layer = m.layer(3)
    rows = layer.rows(ids)                # one sequence, from position 0
    h = layer.attention(h, rows)          # h bfloat16 [T, D]: what comes in is what layer 2 gave out
    h = layer.mlp(h, rows)

The functions are those of the family's module with its weights put in; compiled alone they give the bits that they
give inside the whole step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.engine.batch import Segment, build
from dgpp.layers.embed import embed
from dgpp.layers.rows import Phase, Rows
from dgpp.layers.taps import Taps
from dgpp.models import llama
from dgpp.models.runs import weights_of_layer
from dgpp.models.state import Room
from dgpp.world import Single

if TYPE_CHECKING:
    from dgpp.lab.model import Model, Prompt


MODULES = {"llama": llama}
"""The modules of the families whose layers are an `attention_block` and an `mlp_block`."""


@dataclass
class HandRows:
    """A batch of one sequence from position 0, and an empty cache of its size. `state` moves with every use."""

    rows: Rows
    state: dict[str, jax.Array]


class Blocks:
    """The blocks of a model's layers, compiled for a world of 1; every layer runs the same programs."""

    def __init__(self, model: Model) -> None:
        """Raises ValueError for a model that is spread over a world, or whose family has no blocks here."""
        if model.core.settings.world != 1:
            raise ValueError("a layer by hand needs a world of 1; load the model once more with world=1")
        if model.family.name not in MODULES:
            raise ValueError(f"no layer by hand for family {model.family.name}; there is one for {', '.join(MODULES)}")
        constants = model.family.constants(model.config, model.core.position_ceiling, 1)
        self.cos, self.sin = constants.replicated["cos"], constants.replicated["sin"]
        self.kv_index = jnp.asarray(constants.ranked["kv_index"][0])
        module = MODULES[model.family.name]
        last: dict[str, Any] = {"world": Single(), "kernels": model.core.kernels, "taps": Taps()}
        self.attention = jax.jit(partial(module.attention_block, model.config, **last))
        self.mlp = jax.jit(partial(module.mlp_block, model.config, **last))


@dataclass(frozen=True)
class Layer:
    """Layer `index` of a model."""

    model: Model
    blocks: Blocks
    index: int

    def rows(self, prompt: Prompt) -> HandRows:
        """The rows of a prompt of T tokens, one sequence from position 0, with an empty cache that holds them."""
        tokens = self.model.ids(prompt)
        page = self.model.core.settings.page_tokens
        pages = -(-len(tokens) // page)
        table = np.arange(pages, dtype=np.int32)[None]
        rows = build([Segment(0, 0, tokens, Phase.PREFILL)], table, len(tokens), 1).rows
        room = Room(pages, page, slots=1, verify_rows=1)
        specs = self.model.core.state_specs
        state = {name: jnp.zeros(spec.allocation(room), spec.dtype) for name, spec in specs.items()}
        return HandRows(jax.tree.map(jnp.asarray, rows), state)

    @property
    def weights(self) -> dict[str, Any]:
        """The stacks of weights in which this layer's are."""
        return weights_of_layer(self.model.placed["layers"], self.index)

    def embed(self, rows: HandRows) -> jax.Array:
        """What enters layer 0: the embeddings of the rows' tokens, bfloat16 [T, D]."""
        return embed(self.model.placed["embed"], rows.rows.token)

    def attention(self, h: Any, rows: HandRows) -> jax.Array:
        """h + attention(norm(h)), bfloat16 [T, D]; the rows' keys and values are written to `rows.state`."""
        blocks, position = self.blocks, np.asarray(rows.rows.position)
        rope = (blocks.cos[position], blocks.sin[position])
        out: jax.Array
        out, rows.state = blocks.attention(
            self.weights, jnp.int32(self.index), jnp.asarray(h), rope, blocks.kv_index, rows.rows, rows.state
        )
        return out

    def mlp(self, h: Any, rows: HandRows) -> jax.Array:
        """h + mlp(norm(h)), bfloat16 [T, D]."""
        out: jax.Array = self.blocks.mlp(self.weights, jnp.int32(self.index), jnp.asarray(h), rows.rows)
        return out
