"""Importing one module of a library without what its package pulls in."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any


def module_of(package: str, path: str, name: str, stubs: Mapping[str, Mapping[str, Any]]) -> ModuleType:
    """The module in file `path` of an installed package, under `name`, with `stubs` in the place of other modules."""
    for stub, attributes in stubs.items():
        fake = ModuleType(stub)
        fake.__dict__.update(attributes)
        fake.__path__ = []  # so that submodules can be imported from it
        sys.modules[stub] = fake
    location = Path(str(distribution(package).locate_file(path)))
    spec = importlib.util.spec_from_file_location(name, location)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
