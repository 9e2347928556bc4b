"""Small checkpoints of a few modules, each in a format, under a config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.fixture import random_tensors
from dgpp.checkpoint.quantization.dialects import read_scheme
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import Shape

Tensors = dict[str, tuple[str, np.ndarray]]

SHAPE = (256, 256)
"""A matrix that every format can hold and no block size covers at once."""


def tree_of(modules: Mapping[str, str], shape: Shape = SHAPE) -> SpecTree:
    """One spec for every module, in the format given."""
    axes = tuple(f"axis{i}" for i in range(len(shape)))
    return {name.replace(".", "_"): TensorSpec(name, shape, axes, tag) for name, tag in modules.items()}


def checkpoint_of(
    directory: Path,
    modules: Mapping[str, str],
    quantization: Mapping[str, Any] | None = None,
    changes: Mapping[str, tuple[str, np.ndarray] | None] | None = None,
    files: Mapping[str, Mapping[str, Any]] | None = None,
    shape: Shape = SHAPE,
    **config: Any,
) -> Checkpoint:
    """A checkpoint of these modules; `changes` replaces, adds or (None) leaves out tensors."""
    directory.mkdir(exist_ok=True)
    tensors = random_tensors(tree_of(modules, shape), 0)
    tensors = {name: entry for name, entry in (tensors | dict(changes or {})).items() if entry is not None}
    write(directory / "model.safetensors", tensors)
    if quantization is not None:
        config["quantization_config"] = quantization
    for name, content in {"config.json": config, **(files or {})}.items():
        (directory / name).write_text(json.dumps(content))
    return Checkpoint.open(directory)


def scheme_of(
    directory: Path, quantization: Mapping[str, Any] | None, files: Mapping[str, Mapping[str, Any]] | None = None
) -> Scheme:
    """What a config says, with one tensor that does not matter."""
    return read_scheme(checkpoint_of(directory, {"x": "bf16"}, quantization, files=files, shape=(2, 2)))


def without(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """The same checkpoint as if one of its tensors were not there."""
    return replace(checkpoint, tensors={key: entry for key, entry in checkpoint.tensors.items() if key != name})
