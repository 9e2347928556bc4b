"""A part of a config, read with its type checked: every error says file and field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.checkpoint.errors import CheckpointError


@dataclass(frozen=True)
class Section:
    """An object of a JSON file; `where` is its place, e.g. "DIR/config.json: quantization_config"."""

    where: str
    values: Mapping[str, Any]

    def error(self, message: str) -> CheckpointError:
        """The error to raise about this section."""
        return CheckpointError(f"{self.where}: {message}")

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(key) is not None

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        return str(self._typed(key, default, str, "a string"))

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean."""
        return bool(self._typed(key, default, bool, "true or false"))

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer. Without a default the field must be there."""
        value = self._typed(key, default, int, "an integer")
        if value is None or isinstance(value, bool):
            raise self.error(f"{key} must be an integer, got {self.values.get(key)!r}")
        return int(value)

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when the field is absent."""
        value = self._typed(key, [], list, "a list of names")
        if not all(isinstance(item, str) for item in value):
            raise self.error(f"{key} must be a list of names, got {value!r}")
        return tuple(value)

    def section(self, key: str) -> Section:
        """The object under `key`; empty when the field is absent."""
        joined = f"{self.where}: {key}" if self.where.endswith(".json") else f"{self.where}.{key}"
        return Section(joined, self._typed(key, {}, dict, "an object"))

    def sections(self, key: str) -> dict[str, Section]:
        """The objects in the object under `key`, in document order."""
        inner = self.section(key)
        return {name: inner.section(name) for name in inner.values}

    def _typed(self, key: str, default: Any, kind: type, what: str) -> Any:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.error(f"{key} must be {what}, got {value!r}")
        return value
