"""`python -m tests.formats.crosscheck [--write]`: the vectors of all libraries, compared or written anew."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARIES = ("compressed_tensors", "modelopt", "transformers", "auto_round", "gptqmodel")
COMMAND = "python -m tests.formats.crosscheck --write"
DIRECTORY = Path(__file__).resolve().parents[3] / "goldens" / "formats"


def made(library: str) -> dict[str, Any]:
    """The file of one library: what made it, and its vectors by name."""
    module = importlib.import_module(f"tests.formats.crosscheck.from_{library}")
    packages = (*module.PACKAGES, "torch")
    return {
        "made by": COMMAND,
        "with": {package: version(package).partition("+")[0] for package in packages},
        "vectors": dict(module.vectors()),
    }


def main() -> int:
    """Exit status 1 when a committed file differs from what the library gives, or a library is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.formats.crosscheck")
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    write = parser.parse_args().write
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for library in LIBRARIES:
        path = DIRECTORY / f"{library}.json"
        try:
            content = made(library)
        except (ImportError, PackageNotFoundError) as error:
            print(f"{library}: not installed ({error})")
            wrong += 1
            continue
        text = json.dumps(content, indent=1) + "\n"
        if write:
            path.write_text(text)
        same = path.is_file() and path.read_text() == text
        wrong += not same
        print(f"{library}: {len(content['vectors'])} vectors, {len(text)} bytes, {'same' if same else 'DIFFERENT'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
