"""From a model's name to a core that can step: the one way servers, notebooks and tests open a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpp.checkpoint.hub import resolve
from dgpp.checkpoint.load import Progress, load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.engine.core import Core, CoreSettings
from dgpp.kernels import Kernels
from dgpp.models import Family, family_of


@dataclass(frozen=True)
class Opened:
    """A model on its devices. `name` is what was asked for."""

    name: str
    checkpoint: Checkpoint
    family: Family
    config: Any
    weights: dict[str, Any]
    core: Core


def open_model(
    model: str | None = None,
    settings: CoreSettings | None = None,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
) -> Opened:
    """The model of a directory or a hub id, or with no argument the embedded one, loaded and placed.

    Raises CheckpointError for a checkpoint that cannot be read, and ConfigError (a ValueError) for one whose
    config.json names something we cannot run.
    """
    checkpoint = Checkpoint.open(resolve(model))
    family = family_of(checkpoint.config)
    config = family.config(checkpoint.config)
    weights = load_weights(family.abstract(config), checkpoint, progress)
    return Opened(
        model or "embedded", checkpoint, family, config, weights, Core(family, config, weights, settings, kernels)
    )
