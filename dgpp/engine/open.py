"""From a model's name to a core that can step: the one way servers, notebooks and tests open a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dgpp.checkpoint.drafts import check_drafts
from dgpp.checkpoint.hub import resolve
from dgpp.checkpoint.load import Progress, load_weights
from dgpp.checkpoint.mapped import MappedTable
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, flatten
from dgpp.engine.core import Core
from dgpp.engine.levers import chosen_kernels, held_tree, merged, ngram_source, parted, scaled_config
from dgpp.engine.options import ModelOptions
from dgpp.engine.ranks import check_world
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import Kernels, default
from dgpp.models import Family, family_of


@dataclass(frozen=True)
class Opened:
    """A model on its devices. `name` is what was asked for.

    `tree` is the family's tree in the formats of the checkpoint and the forms of `options`, without a table that stays
    in its files; `notes` say what was made of contradictions in the checkpoint, and how far an option reached.
    """

    name: str
    checkpoint: Checkpoint
    family: Family
    config: Any
    tree: SpecTree
    weights: dict[str, Any]
    core: Core
    notes: tuple[str, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions)


def open_model(
    model: str | None = None,
    settings: CoreSettings | None = None,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
    draft: bool = False,
    options: ModelOptions | None = None,
) -> Opened:
    """The model of a directory or a hub id, or with no argument the embedded one, loaded and placed; with `draft`,
    also its own prediction layer.

    Raises CheckpointError for a checkpoint that cannot be read, or is quantised in a way that is not supported,
    ConfigError (a ValueError) for one whose config.json names something we cannot run, and OptionsError for an option
    that does not fit the model; all before weights are read.
    """
    options, settings = options or ModelOptions(), settings or CoreSettings()
    checkpoint = Checkpoint.open(resolve(model))
    table = resolve_formats(checkpoint)
    family = family_of(checkpoint.config)
    config = scaled_config(family, family.config(checkpoint.config), options)
    kernels = chosen_kernels(family, config, options, kernels or default())
    check_drafts(checkpoint)
    tree = family.tree(config, draft)
    source = ngram_source(family, config, options)
    apart, beside = None, checkpoint
    if source is not None:
        elsewhere = bool(options.ngram_table_model)
        beside = Checkpoint.open(resolve(options.ngram_table_model)) if elsewhere else checkpoint
        tree, apart = parted(tree, (source.path, *source.beside))
        apart = resolve_tree(apart, beside, None if elsewhere else table)
    tree, reached = held_tree(family, resolve_tree(tree, checkpoint, table), options, settings.world)
    mapped = None
    if source is not None and apart is not None and options.ngram_table == "mmap":
        apart, only = parted(apart, (source.path,))
        mapped = MappedTable(beside, dict(flatten(only))[source.path])
    whole = merged(tree, apart or {})
    check_world(whole, family.tied(config), settings.world)
    weights = load_weights(tree, checkpoint, progress)
    if apart is not None:
        weights = merged(weights, load_weights(apart, beside, progress))
    core = Core(family, config, weights, settings, kernels, whole, mapped)
    notes = (*table.notes, *reached)
    return Opened(model or "embedded", checkpoint, family, config, whole, weights, core, notes, options)
