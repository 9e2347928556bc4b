"""Tiny random checkpoints in a release's own layout: what tests run on instead of downloaded weights.

A fixture has everything a release has: config.json, generation_config.json, the tokenizer and chat template (those of
the embedded model), and safetensors in one file or in shards with an index.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import INDEX
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, flatten
from dgpp.formats import Shape

Tagged = tuple[str, np.ndarray]


class ReleaseLayout(Protocol):
    """A release, as far as a fixture needs it: its config.json and its number of safetensors files."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The raw config.json. Vocabulary size and special ids may be left to the tokenizer of all fixtures."""

    @property
    def shards(self) -> int:
        """1 means a single file without an index."""


class Describes(Protocol):
    """A model family, as far as a fixture needs it; `dgpp.models.FAMILIES` holds them."""

    @property
    def name(self) -> str:
        """The family's name."""

    @property
    def config(self) -> Callable[[Mapping[str, Any]], Any]:
        """The family's config of a raw config.json."""

    @property
    def abstract(self) -> Callable[[Any], SpecTree]:
        """The tree of tensors of a config."""

    @property
    def releases(self) -> Mapping[str, ReleaseLayout]:
        """The releases in miniature, by name."""


def write_fixture(family: Describes, release: str, directory: Path | str, seed: int = 0) -> Path:
    """Writes the checkpoint of `release` into `directory` and returns it: equal seeds make equal bytes.

    Raises CheckpointError when the family has no such release or `directory` holds files already.
    """
    if release not in family.releases:
        raise CheckpointError(f"family {family.name} has no release {release!r}; it has {', '.join(family.releases)}")
    directory = Path(directory)
    if directory.is_dir() and any(directory.iterdir()):
        raise CheckpointError(f"{directory} is not empty; give a new directory")
    layout = family.releases[release]
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(embedded_path() / name, directory / name)
    config = {**layout.config, **_tokenizer_fields(layout.config)}
    write_json(directory / "config.json", config)
    write_weights(family.abstract(family.config(config)), directory, seed, layout.shards)
    return directory


def _tokenizer_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of config.json that follow from the tokenizer, as far as the release leaves them open."""
    embedded = read_json(embedded_path() / "config.json")
    names = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
    return {name: embedded[name] for name in names if name not in config}


def write_weights(tree: SpecTree, directory: Path, seed: int, shards: int = 1) -> None:
    """Writes random weights for `tree`: model.safetensors, or `shards` files of about equal size and their index."""
    tensors = random_tensors(tree, seed)
    metadata = {"format": "pt"}  # the framework; transformers refuses files without it
    if shards == 1:
        write(directory / "model.safetensors", tensors, metadata)
        return
    total = sum(array.nbytes for _, array in tensors.values())
    parts: list[dict[str, Tagged]] = [{} for _ in range(shards)]
    weight_map, position = {}, 0
    for name, (tag, array) in tensors.items():
        number = position * shards // total
        parts[number][name] = (tag, array)
        weight_map[name] = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        position += array.nbytes
    for number, part in enumerate(parts, 1):
        write(directory / f"model-{number:05d}-of-{shards:05d}.safetensors", part, metadata)
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def random_tensors(tree: SpecTree, seed: int) -> dict[str, Tagged]:
    """(tag, packed array) of every tensor of `tree`, by its name in the checkpoint.

    Matrices [N, K] have standard deviation 1/sqrt(K), so that activations keep their size; vectors (norm weights) lie
    around 1. A tensor's values depend on the seed, its module's name and its shape alone.
    """
    tensors: dict[str, Tagged] = {}
    for _, spec in flatten(tree):
        arrays = spec.codec.arrays(spec.shape)
        for layer in range(max(1, spec.layers)):
            module = spec.source.format(layer=layer)
            noise = gaussian(spec.shape, seed, module)
            values = 1 + noise / 8 if len(spec.shape) == 1 else noise / np.sqrt(spec.shape[-1])
            for field, array in spec.codec.encode(values.astype(np.float32)).items():
                tensors[f"{module}.{arrays[field].suffix}"] = (arrays[field].tag, array)
    return tensors


def gaussian(shape: Shape, seed: int, name: str) -> np.ndarray:
    """Nearly normal float64 values of mean 0 and variance 1, the same on every machine and NumPy version.

    NumPy promises stable raw bits of PCG64 but no stable normal variates, so each value is the sum of the four 16-bit
    quarters of one raw word (integers, hence exact), shifted and scaled.
    """
    words = np.random.PCG64(np.random.SeedSequence([seed, *name.encode()])).random_raw(int(np.prod(shape)))
    total = sum((words >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    centred = np.asarray(total, np.float64) - 2 * 0xFFFF
    return (centred / np.sqrt((2.0**32 - 1) / 3)).reshape(shape)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes an object the way releases do: two blanks of indentation and a final newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
