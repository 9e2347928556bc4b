"""The model inside the package: a tiny random Llama with a real tokenizer and chat template.

It answers nonsense, but it is a complete checkpoint in a release's layout, so that every command, notebook and test
runs on a fresh machine without a download. `python -m dgpp.ops.embedded DIR` remakes it, byte for byte.
"""

from __future__ import annotations

from pathlib import Path


def embedded_path() -> Path:
    """The directory of the embedded model's checkpoint."""
    return Path(__file__).resolve().parents[1] / "embedded"
