"""The model families: `family_of` finds the one that a config.json names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.models import llama, qwen35, qwen_flash_next
from dgpp.models.family import ConfigError, Constants, Family, Release

FAMILIES: dict[str, Family] = {family.name: family for family in (llama.FAMILY, qwen35.FAMILY, qwen_flash_next.FAMILY)}

__all__ = ["FAMILIES", "ConfigError", "Constants", "Family", "Release", "family_of"]


def family_of(config: Mapping[str, Any]) -> Family:
    """The family whose architecture the raw config.json names.

    Raises ConfigError when `architectures` is missing or names none of ours.
    """
    names = config.get("architectures") or []
    for family in FAMILIES.values():
        if any(name in family.architectures for name in names):
            return family
    known = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    raise ConfigError(f"config.json: architectures {names!r} is not supported; supported: {known}")
