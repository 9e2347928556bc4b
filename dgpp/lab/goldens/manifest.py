"""The manifests: one JSON file a case, one line a value, so that a change of bits reads as a change of lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dgpp
from dgpp.lab.goldens.case import Case, Values


class ManifestError(Exception):
    """A manifest that cannot be read; the message names the file."""


@dataclass(frozen=True)
class Manifest:
    """What is on record for a case."""

    inputs: dict[str, Any]
    portable: Values = field(default_factory=dict)
    pinned: dict[str, Values] = field(default_factory=dict)  # by key
    versions: dict[str, dict[str, str]] = field(default_factory=dict)  # by key


def directory() -> Path:
    """The repository's `goldens`, beside the package of a source checkout."""
    return Path(dgpp.__file__).resolve().parents[1] / "goldens"


def path_of(case: Case, root: Path) -> Path:
    """Where the manifest of a case lies."""
    return root / case.folder / f"{case.name}.json"


def read(case: Case, root: Path) -> Manifest:
    """The manifest of a case, an empty one when there is no file. Raises ManifestError."""
    path = path_of(case, root)
    if not path.is_file():
        return Manifest(_as_json(case.inputs))
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        pinned = {key: record["values"] for key, record in stored["pinned"].items()}
        versions = {key: record["versions"] for key, record in stored["pinned"].items()}
        return Manifest(stored["inputs"], stored["portable"], pinned, versions)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path} is not a manifest of goldens: {error!r}") from error


def write(case: Case, manifest: Manifest, root: Path) -> None:
    """Writes the manifest of a case."""
    path = path_of(case, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {
        "inputs": manifest.inputs,
        "portable": manifest.portable,
        "pinned": {
            key: {"versions": manifest.versions[key], "values": values}
            for key, values in sorted(manifest.pinned.items())
        },
    }
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def same_inputs(case: Case, manifest: Manifest) -> bool:
    """Whether the manifest was made from the inputs that the case has today."""
    return _as_json(case.inputs) == manifest.inputs


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
