"""Real-size planning from configs alone, against the figures that spec/models_qwen.md and spec/engine.md quote."""

from __future__ import annotations

from typing import Any

import pytest

from bench.published import FLASH_NEXT, QWEN35_122B, QWEN38_27B, as_released
from dgpp.checkpoint.spec import SpecTree, flatten
from dgpp.checkpoint.traffic import rank_memory, weight_traffic
from dgpp.models import family_of

GIB, MIB, KIB = 2.0**30, 2.0**20, 2.0**10
VISION = 0.86 * GIB
"""The vision tower's tensors, which are in the files and not in our trees: 27 blocks of width 1152 and the merger."""


def planned(release: str, raw: dict[str, Any]) -> tuple[Any, Any, SpecTree]:
    """(family, config, tree with the prediction layer) of a release."""
    family = family_of(raw)
    config = family.config(raw)
    return family, config, as_released(family.tree(config), release)


@pytest.mark.parametrize(
    ("release", "raw", "nbytes"),
    [
        ("Qwen/Qwen3.8-27B-FP8", QWEN38_27B, 28.8 * GIB),
        ("nvidia/Qwen3.5-122B-A10B-NVFP4", QWEN35_122B, 83.5e9),
        ("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT, 172.8 * GIB),
        ("nvidia/Qwen3.8-Flash-Next-NVFP4", FLASH_NEXT, 123.5 * GIB),
    ],
)
def test_the_tensors_add_up_to_the_published_files(release: str, raw: dict[str, Any], nbytes: float) -> None:
    _, _, tree = planned(release, raw)
    assert sum(spec.nbytes for _, spec in flatten(tree)) + VISION == pytest.approx(nbytes, rel=0.004)


def test_the_number_of_tensors_of_flash_next_fp8_is_the_published_one() -> None:
    _, _, tree = planned("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)
    count = sum(
        len(module.arrays) - sum(array.packed.optional for array in module.arrays)
        for _, spec in flatten(tree)
        for module in spec.modules()
    )
    assert count + 333 == 152_089  # 333 of the vision tower


@pytest.mark.parametrize(("world", "gigabytes"), [(1, 10.98), (2, 6.2), (4, 3.85)])
def test_bytes_per_token_of_flash_next_fp8(world: int, gigabytes: float) -> None:
    _, config, tree = planned("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)
    main = {name: node for name, node in tree.items() if name != "mtp"}
    traffic = weight_traffic(main, {}, world, 1, config.moe.num_experts_per_tok, config.ngram.heads)
    assert traffic.nbytes / 1e9 == pytest.approx(gigabytes, rel=0.005)


@pytest.mark.parametrize(("world", "mebibytes"), [(1, 110.3), (2, 55.3), (4, 27.7)])
def test_committed_state_of_a_flash_next_slot(world: int, mebibytes: float) -> None:
    family, config, _ = planned("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)
    committed = sum(spec.bytes_per_slot(0) for spec in family.state(config, world).values())
    assert committed / MIB == pytest.approx(mebibytes, rel=0.002)


def test_cache_bytes_per_token() -> None:
    family, config, _ = planned("Qwen/Qwen3.8-27B-FP8", QWEN38_27B)
    assert sum(spec.bytes_per_token for spec in family.state(config, 1).values()) == 64 * KIB
    assert sum(spec.bytes_per_token for spec in family.draft.state(config, 1).values()) == 4 * KIB
    assert family.state(config, 1)["delta.s"].bytes_per_slot(0) == pytest.approx(151e6, rel=0.001)
    family, config, _ = planned("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)
    for world, kilobytes in ((1, 25.3), (2, 13.1), (4, 13.1)):
        nbytes = sum(spec.bytes_per_token for spec in family.state(config, world).values())
        assert nbytes / 1e3 == pytest.approx(kilobytes, rel=0.005)


@pytest.mark.parametrize(
    ("release", "raw"), [("Qwen/Qwen3.8-27B-FP8", QWEN38_27B), ("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)]
)
def test_every_release_can_be_cut_for_two_and_four_ranks(release: str, raw: dict[str, Any]) -> None:
    _, _, tree = planned(release, raw)
    one, two, four = (rank_memory(tree, {}, world) for world in (1, 2, 4))
    assert one > two > one / 2
    assert two > four > one / 4


def test_the_hash_of_the_published_table() -> None:
    _, config, _ = planned("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT)
    assert config.ngram.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert config.ngram.sizes[:3] == (20000003, 20000023, 20000033)
    assert config.ngram.sizes[-1] == 20000171
    assert config.ngram.rows == 320_001_536
