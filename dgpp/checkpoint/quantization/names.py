"""How the libraries match module names: each dialect has a rule of its own.

All patterns see full module names as in the checkpoint, e.g. "model.layers.3.mlp.gate_proj".
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from dgpp.checkpoint.errors import CheckpointError

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Modules that hold several projections as one tensor; configs may name the whole or the parts."""

EMBEDDINGS = ("embed_tokens", "embedding", "ngram_embedding", "wte")


def parts_of(module: str) -> tuple[str, ...]:
    """The names of the projections that a fused module holds; none for any other."""
    parent, _, name = module.rpartition(".")
    return tuple(f"{parent}.{part}" for part in FUSED.get(name, ()))


def draft_alias(module: str, layers: int | None) -> tuple[str, ...]:
    """The other name of a module of a draft layer, which configs may number after the last of the model's layers."""
    match = re.search(r"(?:^|\.)mtp\.layers\.(\d+)\.", module)
    return (f"model.layers.{layers + int(match[1])}.{module[match.end() :]}",) if match and layers else ()


def class_of(module: str) -> str:
    """The class that a target like "Linear" means: releases name their embeddings alike."""
    return "Embedding" if module.rpartition(".")[2] in EMBEDDINGS else "Linear"


def named_by_regex(pattern: str, module: str, where: str) -> bool:
    """Whether a regular expression matches from the start of the name. Raises CheckpointError for a broken one."""
    try:
        return re.match(pattern, module) is not None
    except re.error as error:
        raise CheckpointError(f"{where}: {pattern!r} is not a regular expression: {error}") from None


def named_by_target(targets: Iterable[str], module: str, where: str) -> bool:
    """compressed-tensors: "re:" and an expression, the full name, or the class. A name is never a prefix."""
    return any(
        named_by_regex(target[3:], module, where) if target.startswith("re:") else target in (module, class_of(module))
        for target in targets
    )


def named_by_glob(patterns: Iterable[str], module: str) -> bool:
    """modelopt: wildcards over the whole name; "a.*" also means "a" itself."""
    return any(
        fnmatch.fnmatchcase(module, pattern) or (pattern.endswith(".*") and module == pattern[:-2])
        for pattern in patterns
    )


def named_by_part(patterns: Iterable[str], module: str, where: str) -> bool:
    """transformers: an expression from the start up to a dot or the end, or the end of the name."""
    boundary = r"(?:(?<=\.)|(?=\.|$))"
    return any(
        module.endswith(pattern) or named_by_regex(f"(?:{pattern}){boundary}", module, where) for pattern in patterns
    )
