from __future__ import annotations

from typing import Any

import pytest

from dgpp.checkpoint.reader import Checkpoint
from dgpp.engine.core import Core
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import Kernels
from dgpp.lab.model import Model, load
from dgpp.models import Family
from tests.tiny import tiny

LAYOUT: dict[str, Any] = {"slots": 4, "pool_tokens": 384, "page_tokens": 16, "row_families": (16, 64)}
"""Small pages, so that their borders are near."""


@pytest.fixture(scope="session")
def embedded() -> Model:
    """The embedded model, with text."""
    return load(**LAYOUT)


def tiny_model(kernels: Kernels | None = None, family: Family | None = None, **layout: Any) -> Model:
    """A model of three layers without files, on kernels or a family that may be defective; one program to compile."""
    known, config, weights = tiny("tiny-9x3")
    family = family or known
    core = Core(family, config, weights, CoreSettings(**{**LAYOUT, "row_families": (16,), **layout}), kernels)
    no_files: Checkpoint = None  # type: ignore[assignment]
    return Model("tiny-9x3", no_files, family, config, family.abstract(config), weights, core)


@pytest.fixture(scope="session")
def sound() -> Model:
    """The tiny model without defects."""
    return tiny_model()
