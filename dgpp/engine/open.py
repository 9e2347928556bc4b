"""From a model's name to a core that can step: the one way servers, notebooks and tests open a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpp.checkpoint.drafts import check_drafts
from dgpp.checkpoint.hub import resolve
from dgpp.checkpoint.load import Progress, load_weights
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree
from dgpp.engine.core import Core, CoreSettings, check_world
from dgpp.kernels import Kernels
from dgpp.models import Family, family_of


@dataclass(frozen=True)
class Opened:
    """A model on its devices. `name` is what was asked for.

    `tree` is the family's tree in the formats of the checkpoint; `notes` say what was made of contradictions in it.
    """

    name: str
    checkpoint: Checkpoint
    family: Family
    config: Any
    tree: SpecTree
    weights: dict[str, Any]
    core: Core
    notes: tuple[str, ...] = ()


def open_model(
    model: str | None = None,
    settings: CoreSettings | None = None,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
    draft: bool = False,
) -> Opened:
    """The model of a directory or a hub id, or with no argument the embedded one, loaded and placed; with `draft`,
    also its own prediction layer.

    Raises CheckpointError for a checkpoint that cannot be read, or is quantised in a way that is not supported, and
    ConfigError (a ValueError) for one whose config.json names something we cannot run; both before weights are read.
    """
    checkpoint = Checkpoint.open(resolve(model))
    table = resolve_formats(checkpoint)
    family = family_of(checkpoint.config)
    config = family.config(checkpoint.config)
    check_drafts(checkpoint)
    tree = resolve_tree(family.tree(config, draft), checkpoint, table)
    check_world(tree, family.tied(config), (settings or CoreSettings()).world)
    weights = load_weights(tree, checkpoint, progress)
    core = Core(family, config, weights, settings, kernels, tree)
    return Opened(model or "embedded", checkpoint, family, config, tree, weights, core, table.notes)
