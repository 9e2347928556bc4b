"""Writes goldens/qwen_reference.json: what transformers computes on the tiny Qwen releases, in float32.

    python -m venv TORCH; TORCH/bin/pip install torch==2.13.0 transformers==5.24.0 -e .
    TORCH/bin/python -m tests.real.qwen_reference

For each release, a fixture of seed 0 is read by transformers and fed a prompt that holds an end-of-sequence token and
is longer than the sparse attention's budget. The golden holds, for every position, the logits of `LOGITS` ids and the
norm of all logits; and for every layer the norm of its output and the first `VALUES` of it at `PLACES`.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.fixture import write_fixture
from dgpp.models import FAMILIES

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "qwen_reference.json"
RELEASES = (("qwen35", "tiny-dense"), ("qwen35", "tiny-moe"), ("qwen_flash_next", "tiny"))
TOKENS = 80
LOGITS = (0, 1, 2, 3, 100, 777, 1234, 2047)
PLACES = (0, 1, 17, 40, 63, 79)
VALUES = 6


def prompt(config: dict[str, Any]) -> list[int]:
    """The ids of the prompt: random ones, with two end-of-sequence tokens among them."""
    text = config["text_config"]
    ids = np.random.default_rng(5).integers(8, text["vocab_size"], TOKENS)
    ids[[10, 33]] = text["eos_token_id"]
    return [int(token) for token in ids]


def summary(logits: np.ndarray, layers: list[np.ndarray]) -> dict[str, Any]:
    """What the golden holds of logits [T, V] and the outputs of the layers [T, D]."""
    logits, layers = logits.astype(np.float64), [x.astype(np.float64) for x in layers]
    return {
        "logits": np.round(logits[:, LOGITS], 6).tolist(),
        "norms": np.round(np.linalg.norm(logits, axis=-1), 5).tolist(),
        "layers": [
            {
                "norm": round(float(np.linalg.norm(x)), 4),
                "values": np.round(x[np.ix_(PLACES, range(VALUES))], 6).tolist(),
            }
            for x in layers
        ],
    }


def reference(directory: Path) -> dict[str, Any]:
    """The golden's entry of a fixture."""
    import torch
    import transformers

    torch.set_num_threads(1)
    config = read_json(directory / "config.json")
    kind = getattr(transformers, config["architectures"][0])
    model = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids = prompt(config)
    layers: list[np.ndarray] = []
    for layer in model.model.language_model.layers:
        layer.register_forward_hook(lambda module, args, out: layers.append(_first(out)))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    return {"ids": ids, **summary(logits, layers)}


def _first(out: Any) -> np.ndarray:
    """The hidden state of a layer's output, [T, D]."""
    hidden = out[0] if isinstance(out, tuple) else out
    array: np.ndarray = hidden[0].flatten(1).numpy()
    return array


def main() -> int:
    """The command line."""
    found: dict[str, Any] = {
        "regenerate": "python -m tests.real.qwen_reference",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
        "releases": {},
    }
    for family, release in RELEASES:
        with tempfile.TemporaryDirectory() as scratch:
            directory = write_fixture(FAMILIES[family], release, Path(scratch) / "model")
            found["releases"][f"{family}/{release}"] = reference(directory)
    lines = [f'"{key}": {json.dumps(value)}' for key, value in found.items() if key != "releases"]
    releases = ",\n".join(f'"{name}": {_lines(entry)}' for name, entry in found["releases"].items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + ',\n"releases": {\n' + releases + "\n}\n}\n", encoding="utf-8")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")
    return 0


def _lines(entry: dict[str, Any]) -> str:
    parts = []
    for key, value in entry.items():
        rows = ",\n".join(json.dumps(row) for row in value) if isinstance(value[0], list | dict) else None
        parts.append(f'"{key}": ' + (f"[\n{rows}\n]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    sys.exit(main())
