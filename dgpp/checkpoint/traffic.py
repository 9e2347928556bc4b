"""What a decode step reads of the weights: every byte once, except where rows choose among them.

An embedding is looked up, one row of it for every row of the batch, and a table of n-grams, several rows. Of E experts
of which each row uses k, a batch of R rows uses E * (1 - (1 - k/E)^R) distinct ones on average, if rows choose
independently and evenly; real routers are uneven, so real batches share more. Everything else is read whole, however
many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dgpp.checkpoint.slicing import rank_bytes
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten

EXPERTS = "experts"
"""The name of an axis that holds experts."""

VOCABULARY, NGRAMS = "vocab", "ngrams"
"""The names of axes along which rows are looked up: tokens, and n-grams of tokens."""

PER_TOKEN = ("num_experts_per_tok", "moe_topk", "num_experts_per_token")
"""The fields of config.json that say how many experts a token uses."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of the weights that one rank reads in a decode step of `rows` rows."""

    rows: int
    nbytes: float
    distinct_experts: float | None  # of a layer; None for a model without experts

    @property
    def per_token(self) -> float:
        """Bytes for each token that the step makes."""
        return self.nbytes / self.rows


def distinct_experts(experts: int, per_token: int, rows: int) -> float:
    """The expected number of distinct experts that `rows` rows use of `experts`, each choosing `per_token`."""
    return float(experts * (1 - (1 - per_token / experts) ** rows))


def experts_per_token(config: Mapping[str, Any]) -> int | None:
    """How many routed experts a token uses, from a raw config.json or its text_config; None when it does not say."""
    for fields in (config, config.get("text_config")):
        for name in PER_TOKEN:
            if isinstance(fields, Mapping) and isinstance(value := fields.get(name), int) and value > 0:
                return value
    return None


def lookups_per_token(config: Mapping[str, Any]) -> int:
    """How many rows of a table of n-grams a token uses, from a raw config.json or its text_config; 1 when it does not
    say."""
    for fields in (config, config.get("text_config")):
        if isinstance(fields, Mapping):
            heads, size = fields.get("heads_per_ngram"), fields.get("ngram_size")
            if isinstance(heads, int) and isinstance(size, int) and heads > 0 and size > 1:
                return heads * (size - 1)
    return 1


def weight_traffic(
    tree: SpecTree,
    tied: Mapping[str, tuple[str, TensorSpec]],
    world: int,
    rows: int,
    per_token: int | None = None,
    lookups: int = 1,
) -> Traffic:
    """The traffic of one rank of a world. `tied` are the specs that read another one's data: a tied head reads all of
    its embedding. Without `per_token` all experts are counted; `lookups` are the rows of a table of n-grams that a
    token uses. Raises ValueError for a tree that cannot be sliced."""
    total, distinct = 0.0, None
    held = dict(flatten(tree))
    reading = {path: as_stored(spec, held[source]) for path, (source, spec) in tied.items()}
    for path, spec in (held | reading).items():
        nbytes: float = rank_bytes(spec, world)
        if spec.axes[0] == NGRAMS or (spec.plain and spec.axes[0] == VOCABULARY and path not in tied):
            used = rows * (lookups if spec.axes[0] == NGRAMS else 1)
            nbytes *= min(1, used / spec.shape[0])
        elif EXPERTS in spec.axes and per_token is not None:
            count = spec.shape[spec.axes.index(EXPERTS)]
            distinct = distinct_experts(count, per_token, rows)
            nbytes *= distinct / count
        total += nbytes
    return Traffic(rows, total, distinct)


def as_stored(spec: TensorSpec, source: TensorSpec) -> TensorSpec:
    """`spec` in the format in which another one, whose data it reads, is stored and held."""
    return replace(spec, format=source.format, resident=source.resident)


def rank_memory(tree: SpecTree, tied: Mapping[str, tuple[str, TensorSpec]], world: int) -> int:
    """Bytes of the weights that one rank of a world holds. Raises ValueError naming a tensor that cannot be sliced.

    A world of 1 holds a tied head once, with its embedding; ranks of a larger one hold a slice of it beside.
    """
    specs = dict(flatten(tree))
    if world > 1:
        specs |= {path: as_stored(spec, specs[source]) for path, (source, spec) in tied.items()}
    total = 0
    for spec in specs.values():
        try:
            total += rank_bytes(spec, world)
        except ValueError as error:
            raise ValueError(f"{spec.source}: {error}") from None
    return total
