"""Bytes that ranks hold and that decode steps read."""

from __future__ import annotations

import math
import random

import pytest

from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges
from dgpp.checkpoint.traffic import distinct_experts, experts_per_token, lookups_per_token, rank_memory, weight_traffic

VOCAB, D, F, EXPERTS = 80, 64, 128, 16
HEAD = TensorSpec("embed", (VOCAB, D), ("vocab", "embed"), leaves=Leaves(0, even_ranges(VOCAB)))
TREE: SpecTree = {
    "embed": TensorSpec("embed", (VOCAB, D), ("vocab", "embed"), plain=True),
    "layers": {
        "norm": TensorSpec("layers.{layer}.norm", (D,), ("embed",), numbers=(0, 1, 2)),
        "gate": TensorSpec(
            "layers.{layer}.gate", (F, D), ("mlp", "embed"), leaves=Leaves(0, even_ranges(F)), numbers=(0, 1, 2)
        ),
        "experts": TensorSpec(
            "layers.{layer}.experts", (EXPERTS, F, D), ("experts", "mlp", "embed"), leaves=Leaves(1, even_ranges(F)),
            numbers=(0, 1, 2),
        ),
    },
}  # fmt: skip
TIED = {"head": ("embed", HEAD)}
EMBED, NORM, GATE = 2 * VOCAB * D, 3 * 2 * D, 3 * 2 * F * D


@pytest.mark.parametrize(("experts", "used", "rows"), [(16, 2, 1), (16, 2, 5), (288, 8, 8)])
def test_expected_distinct_experts(experts: int, used: int, rows: int) -> None:
    draw = random.Random(0)
    trials = 2000
    seen = [len({expert for _ in range(rows) for expert in draw.sample(range(experts), used)}) for _ in range(trials)]
    mean = sum(seen) / trials
    spread = math.sqrt(sum((x - mean) ** 2 for x in seen) / trials)
    assert distinct_experts(experts, used, rows) == pytest.approx(mean, abs=4 * spread / math.sqrt(trials) + 1e-9)


def test_one_row_reads_its_experts_and_many_rows_read_all() -> None:
    assert distinct_experts(16, 2, 1) == 2
    assert distinct_experts(16, 16, 1) == 16
    assert distinct_experts(16, 2, 10_000) == pytest.approx(16)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 8, 1000])
def test_bytes_of_a_step(world: int, rows: int) -> None:
    traffic = weight_traffic(TREE, TIED, world, rows, per_token=2)
    looked_up = min(rows, VOCAB) * 2 * D
    experts = distinct_experts(EXPERTS, 2, rows)
    assert traffic.distinct_experts == experts
    sliced = (EMBED + GATE + 3 * 2 * experts * F * D) / world  # the tied head is read whole
    assert traffic.nbytes == pytest.approx(looked_up + NORM + sliced)
    assert traffic.per_token == pytest.approx(traffic.nbytes / rows)


def test_without_a_number_of_experts_all_are_read() -> None:
    traffic = weight_traffic(TREE, {}, 1, 1)
    assert traffic.distinct_experts is None
    assert traffic.nbytes == 2 * D + NORM + GATE + 3 * 2 * EXPERTS * F * D


def test_memory_of_a_rank() -> None:
    experts = 3 * 2 * EXPERTS * F * D
    assert rank_memory(TREE, TIED, 1) == EMBED + NORM + GATE + experts
    assert rank_memory(TREE, TIED, 4) == EMBED + NORM + (EMBED + GATE + experts) // 4


def test_a_tensor_that_cannot_be_sliced_is_named() -> None:
    tree: SpecTree = {
        "down": TensorSpec("down", (64, 320), ("embed", "mlp"), "int4_g128_f16", leaves=Leaves(1, even_ranges(320)))
    }
    assert rank_memory(tree, {}, 1)
    with pytest.raises(ValueError, match="down: int4_g128_f16: cannot be cut at 80"):
        rank_memory(tree, {}, 2)


def test_experts_of_a_token_are_in_the_config() -> None:
    assert experts_per_token({"num_experts_per_tok": 8}) == 8
    assert experts_per_token({"text_config": {"num_experts_per_tok": 8}}) == 8
    assert experts_per_token({"hidden_size": 8}) is None


@pytest.mark.parametrize("world", [1, 4])
def test_a_table_of_ngrams_is_looked_up_several_times_a_token(world: int) -> None:
    table = TensorSpec(
        "t.{part}", (4000, 16), ("ngrams", "embed"), leaves=Leaves(0, even_ranges(4000)), parts=4, whole="t"
    )
    traffic = weight_traffic({"table": table}, {}, world, 3, lookups=16)
    assert traffic.nbytes == pytest.approx(3 * 16 * 16 * 2 / world)
    assert weight_traffic({"table": table}, {}, world, 1000, lookups=16).nbytes == 4000 * 16 * 2 / world
    fields = {"heads_per_ngram": 8, "ngram_size": 3}
    assert lookups_per_token(fields) == lookups_per_token({"text_config": fields}) == 16
    assert lookups_per_token({"ngram_size": 1}) == 1


def test_a_tied_head_is_held_as_its_embedding() -> None:
    embed = TensorSpec("embed", (VOCAB, 1024), ("vocab", "embed"), "f16", resident="fp8_block128")
    head = TensorSpec("embed", (VOCAB, 1024), ("vocab", "embed"), leaves=Leaves(0, even_ranges(VOCAB)))
    assert rank_memory({"embed": embed}, {"head": ("embed", head)}, 1) == VOCAB * 1024 + 4 * 8
    assert (
        rank_memory({"embed": embed}, {"head": ("embed", head)}, 4) == VOCAB * 1024 * 5 // 4 + 4 * 8 + 5 * 4 * 8
    )  # blocks of 4 rows
