"""The tiny Qwen fixtures that several tests share: written once per process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.models import FAMILIES

MODELS = (("qwen35", "tiny-dense"), ("qwen35", "tiny-moe"), ("qwen_flash_next", "tiny"))
LARGE = "qwen_flash_next"
"""Its step is a large program, which takes half a minute to compile: of what compiles it, much is a slow test."""


def slow_if(large: bool, *values: Any) -> Any:
    """A case of a parametrized test, slow where it is of the large model."""
    return pytest.param(*values, marks=[pytest.mark.slow] if large else [])


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dgpp-qwen-")  # removed when the process ends


@cache
def directory_of(family: str, release: str) -> Path:
    """The fixture of a release, seed 0."""
    return write_fixture(FAMILIES[family], release, Path(_folder().name) / f"{family}-{release}")
