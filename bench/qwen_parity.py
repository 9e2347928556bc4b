"""The Qwen families beside transformers, layer by layer, on the tiny fixtures.

    python -m bench.qwen_parity --record

`transformers_ratio` is the largest difference from transformers' float32 values (goldens/qwen_reference.json) in our
float32 mode, over the largest value of that layer or of the logits. `rounded_ratio` is how far the served bfloat16
forward is from our float32 one, as Euclidean norms; for logits of models that choose experts or blocks, a rounding can
tip a choice, so `judged_ratio` holds them against the float64 oracle with the choices of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.fixture import write_fixture
from dgpp.lab.model import load
from dgpp.models import FAMILIES
from dgpp.ops.records import write_record
from tests.oracles import qwen
from tests.oracles.reading import decoded
from tests.real.qwen_reference import GOLDEN, LOGITS, PLACES, RELEASES, VALUES, prompt

CHOICES = ("layers.*.moe.experts", "layers.*.index.blocks")


def rows_of(family: str, release: str, directory: Path, expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a fixture: one per layer, and the logits."""
    ids = prompt(read_json(directory / "config.json"))
    layout: dict[str, Any] = {"slots": 1, "pool_tokens": 128, "page_tokens": 16, "row_families": (len(ids),)}
    exact = load(str(directory), kernels="float32", **layout).forward(ids, capture="layers.*.out")
    served = load(str(directory), **layout)
    wanted = [site for site in CHOICES if site in served.family.sites(served.config)]
    found = served.forward(ids, capture=("layers.*.out", *wanted))
    rows = []
    for number, layer in enumerate(expected["layers"]):
        name = f"layers.{number}.out"
        ours = np.asarray(exact.activations[name], np.float64)
        there = ours[np.ix_(PLACES, range(VALUES))]
        rows.append(
            {
                "name": f"{family}/{release}, layer {number}",
                "transformers_ratio": float(np.abs(there - np.array(layer["values"])).max() / np.abs(ours).max()),
                "rounded_ratio": distance(found.activations[name], ours),
            }
        )
    chosen = {name: array for name, array in found.activations.items() if not name.endswith(".out")}
    judge = qwen.logits(served.checkpoint.config, decoded(served.tree, served.checkpoint), ids, chosen=chosen)
    error = np.abs(exact.logits[:, LOGITS] - np.array(expected["logits"])).max()
    rows.append(
        {
            "name": f"{family}/{release}, logits",
            "transformers_ratio": float(error / np.abs(exact.logits).max()),
            "rounded_ratio": distance(found.logits, exact.logits),
            "judged_ratio": distance(found.logits, judge),
        }
    )
    return rows


def distance(found: Any, expected: Any) -> float:
    """|found - expected| / |expected|."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.qwen_parity", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/qwen_parity.json")
    options = parser.parse_args(arguments)
    golden = json.loads(GOLDEN.read_text())
    rows = []
    for family, release in RELEASES:
        with tempfile.TemporaryDirectory() as scratch:
            directory = write_fixture(FAMILIES[family], release, Path(scratch) / "model")
            rows += rows_of(family, release, directory, golden["releases"][f"{family}/{release}"])
    for row in rows:
        print("  ".join(f"{value:.2e}" if isinstance(value, float) else f"{value:40}" for value in row.values()))
    if options.record:
        print(write_record("qwen_parity", rows, extra={f"reference {k}": v for k, v in golden["versions"].items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
