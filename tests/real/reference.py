"""Writes goldens/smollm2_reference.json: what transformers computes on the SmolLM2 snapshot, judged in float64.

    python -m venv TORCH; TORCH/bin/pip install torch==2.13.0 transformers==5.24.0 numpy ml_dtypes gguf tokenizers
    TORCH/bin/python -m tests.real.reference

The prompt is the BOS token and the first 319 tokens of tests/data/alice.txt. For each position the file holds the
token, the float64 judge's 16 best ids with their logits, and for each run of transformers its best id, its margin
over the second, and its error against the judge over the whole vocabulary (see `tests.real.judge`). Three runs:
`float32`; `bfloat16`, as the model is used; and `bfloat16_wide_head`, the same hidden states with the head in float64,
since transformers rounds its logits to bfloat16 once more. The command is deterministic on one machine and torch
build; the judge's part is the same on all.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.real.float64 import float64_logits
from tests.real.judge import POSITIONS, judge, prompt
from tests.real.smollm2 import snapshot

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "smollm2_reference.json"
BEST = 16


def weights_digest(directory: Path) -> str:
    """SHA-256 of the snapshot's weights."""
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def transformers_logits(directory: Path, ids: list[int]) -> dict[str, np.ndarray]:
    """The logits of each run, float64 [T, V]."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # the order of the sums does not depend on the machine's cores
    runs = {}
    with torch.no_grad():
        for name in ("float32", "bfloat16"):
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, name))
            output = model(torch.tensor([ids]), output_hidden_states=True)
            runs[name] = output.logits[0].double().numpy()
        head = model.get_output_embeddings().weight.double()
        runs["bfloat16_wide_head"] = (output.hidden_states[-1][0].double() @ head.T).numpy()
    return runs


def reference(directory: Path) -> dict[str, Any]:
    """The golden's content."""
    ids = prompt(directory)
    exact = float64_logits(directory, ids)
    best = np.argsort(-exact, axis=-1, kind="stable")[:, :BEST]
    return {
        "regenerate": "python -m tests.real.reference",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
        "weights_sha256": weights_digest(directory),
        "ids": ids,
        "best_ids": best.tolist(),
        "best_logits": np.round(np.take_along_axis(exact, best, axis=-1), 6).tolist(),
        "runs": {name: judge(run, exact).rows() for name, run in transformers_logits(directory, ids).items()},
    }


def main() -> int:
    """The command line: writes the golden and prints the errors."""
    found = reference(snapshot())
    lists = {key: value for key, value in found.items() if key not in ("best_ids", "best_logits", "runs")}
    text = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in lists.items()]
    text += [f"{json.dumps(key)}: {_lines(found[key])}" for key in ("best_ids", "best_logits")]
    runs = ",\n".join(f"{json.dumps(name)}: {_lines(rows)}" for name, rows in found["runs"].items())
    text.append(f'"runs": {{\n{runs}\n}}')
    GOLDEN.write_text("{\n" + ",\n".join(text) + "\n}\n", encoding="utf-8")
    print(f"{GOLDEN}: {POSITIONS} positions, {GOLDEN.stat().st_size} bytes")
    return 0


def _lines(rows: list[Any]) -> str:
    """A list with one element a line, so that a change shows as the positions it touches."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"


if __name__ == "__main__":
    sys.exit(main())
