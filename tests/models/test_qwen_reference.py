"""The Qwen families beside transformers, whose float32 results on the same fixtures are in the goldens."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.fixture import write_fixture
from dgpp.engine.batch import Segment
from dgpp.kernels.rows import Phase
from dgpp.lab.model import Model, load
from dgpp.models import FAMILIES
from tests.oracles import qwen
from tests.oracles.reading import decoded
from tests.real.qwen_reference import GOLDEN, LOGITS, PLACES, RELEASES, VALUES, prompt

BOUND = 1e-4
"""Of the logits' scale. Sums in another order differ by about 1e-6 of it."""

REFERENCE: dict[str, Any] = json.loads(GOLDEN.read_text())["releases"]


@pytest.fixture(scope="module", params=RELEASES, ids="/".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    family, release = request.param
    return f"{family}/{release}", write_fixture(FAMILIES[family], release, tmp_path_factory.mktemp("m") / "model")


def opened(directory: Path, ids: list[int], kernels: str) -> Model:
    return load(
        str(directory), page_tokens=16, pool_tokens=128, slots=1, row_families=(len(ids),), verify_rows=1,
        kernels=kernels,
    )  # fmt: skip


def test_every_layer_and_the_logits_are_those_of_transformers_in_float32(case: tuple[str, Path]) -> None:
    name, directory = case
    expected = REFERENCE[name]
    ids = prompt(read_json(directory / "config.json"))
    assert ids == expected["ids"]
    out = opened(directory, ids, "float32").forward(ids, capture="layers.*.out")
    for number, layer in enumerate(expected["layers"]):
        found = np.asarray(out.activations[f"layers.{number}.out"], np.float64)
        assert np.linalg.norm(found) == pytest.approx(layer["norm"], rel=1e-5)
        error = np.abs(found[np.ix_(PLACES, range(VALUES))] - np.array(layer["values"])).max()
        assert error <= BOUND * np.abs(found).max(), f"layer {number}"
    scale = float(np.abs(out.logits).max())
    assert np.abs(out.logits[:, LOGITS] - np.array(expected["logits"])).max() <= BOUND * scale
    assert np.abs(np.linalg.norm(out.logits, axis=-1) - np.array(expected["norms"])).max() <= BOUND * scale * 8


def test_the_prompt_is_longer_than_the_sparse_budget_and_holds_the_end_of_text(case: tuple[str, Path]) -> None:
    _, directory = case
    config = read_json(directory / "config.json")
    text = config["text_config"]
    assert text["eos_token_id"] in prompt(config)
    assert len(prompt(config)) > max(64, text.get("indexer_budget", 0))


def test_rotary_positions_are_apart_from_places_in_the_cache(case: tuple[str, Path]) -> None:
    """Positions as behind an image of 3 x 4 patches, against the oracle; and the same rows cut inside the image."""
    _, directory = case
    ids = prompt(read_json(directory / "config.json"))[:40]
    image = [(9, 9 + row, 9 + column) for row in range(3) for column in range(4)]
    rope = [(i,) * 3 for i in range(9)] + image + [(13 + i,) * 3 for i in range(len(ids) - 21)]
    model = opened(directory, ids, "float32")
    core = model.core
    core.pool.reserve(0, len(ids))

    def fed(borders: list[int]) -> np.ndarray:
        parts = []
        for start, stop in pairwise(borders):
            segment = Segment(
                0, start, tuple(ids[start:stop]), Phase.PREFILL, tuple(range(stop - start)), tuple(rope[start:stop])
            )
            parts.append(np.asarray(core.step_all([segment]).logits)[: stop - start])
        return np.concatenate(parts)

    whole = fed([0, len(ids)])
    judge = qwen.logits(model.checkpoint.config, decoded(model.tree, model.checkpoint), ids, rope=np.array(rope))
    assert np.abs(whole - judge).max() <= BOUND * np.abs(judge).max()
    assert np.abs(fed([0, 11, 14, len(ids)]) - judge).max() <= BOUND * np.abs(judge).max()
    plain = qwen.logits(model.checkpoint.config, decoded(model.tree, model.checkpoint), ids)
    assert np.abs(whole - plain).max() > 100 * BOUND * np.abs(judge).max()
