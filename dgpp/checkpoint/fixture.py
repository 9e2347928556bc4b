"""Tiny random checkpoints in a release's own layout: what tests run on instead of downloaded weights.

A fixture has everything a release has: config.json, generation_config.json, the tokenizer and chat template (those of
the embedded model), and safetensors in one file or in shards with an index. Its weights are stored in the release's
formats, whatever its config says about them.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization import with_formats
from dgpp.checkpoint.reader import INDEX
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, StoredModule, TensorSpec, flatten
from dgpp.formats import Format, Shape
from dgpp.formats.exl3 import EXL3
from dgpp.formats.exl3_trellis import MARKERS
from dgpp.formats.gptq import GPTQ

Tagged = tuple[str, np.ndarray]


class ReleaseLayout(Protocol):
    """A release, as far as a fixture needs it: its config.json and its number of safetensors files."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The raw config.json. Vocabulary size and special ids may be left to the tokenizer of all fixtures."""

    @property
    def shards(self) -> int:
        """1 means a single file without an index."""

    @property
    def formats(self) -> tuple[tuple[str, str], ...]:
        """(expression, tag): the first expression found in a module's name gives its format."""

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """Further JSON files."""

    @property
    def optional(self) -> frozenset[str]:
        """Fields of formats that a release may lack, and this one has."""

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of float32 tensors [] beside the weights, with `{layer}` for the layers."""

    @property
    def without(self) -> str:
        """An expression for the names of tensors that are left to another release; empty when none are."""


class Describes(Protocol):
    """A model family, as far as a fixture needs it; `dgpp.models.FAMILIES` holds them."""

    @property
    def name(self) -> str:
        """The family's name."""

    @property
    def config(self) -> Callable[[Mapping[str, Any]], Any]:
        """The family's config of a raw config.json."""

    def tree(self, config: Any) -> SpecTree:
        """The tree of all tensors of a config."""

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
    config = with_tokenizer(layout.config)
    for name, content in {"config.json": config, **layout.files}.items():
        write_json(directory / name, content)
    tree = stored_tree(family.tree(family.config(config)), layout)
    tensors = random_tensors(tree, seed, layout.optional)
    if layout.without:
        tensors = {name: tensor for name, tensor in tensors.items() if not re.search(layout.without, name)}
    layers = max(spec.stack[-1] + 1 for _, spec in flatten(tree) if spec.layers)
    for name in layout.scalars:
        tensors |= {name.format(layer=layer): ("F32", np.array(1, np.float32)) for layer in range(layers)}
    write_tensors(tensors, directory, layout.shards)
    return directory


def stored_tree(tree: SpecTree, layout: ReleaseLayout) -> SpecTree:
    """`tree` in the formats of the release."""

    def format_of(module: str) -> str | None:
        return next((tag for pattern, tag in layout.formats if re.search(pattern, module)), None)

    return with_formats(tree, format_of)


def with_tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """A release's config.json with the fields that follow from the tokenizer of all fixtures, where it leaves them
    open; in its `text_config` if it has one."""
    embedded = read_json(embedded_path() / "config.json")
    inside = config.get("text_config", config)
    names = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
    filled = {**inside, **{name: embedded[name] for name in names if name not in inside}}
    return {**config, "text_config": filled} if "text_config" in config else filled


def write_weights(tree: SpecTree, directory: Path, seed: int, shards: int = 1) -> None:
    """Writes random weights for `tree`, in the formats that it has."""
    write_tensors(random_tensors(tree, seed), directory, shards)


def write_tensors(tensors: Mapping[str, Tagged], directory: Path, shards: int = 1) -> None:
    """Writes tensors: model.safetensors, or `shards` files of about equal size and their index."""
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


def random_tensors(tree: SpecTree, seed: int, optional: Collection[str] = ()) -> dict[str, Tagged]:
    """(tag, packed array) of every tensor of `tree`, by its name in the checkpoint.

    Matrices [N, K] have standard deviation 1/sqrt(K), so that activations keep their size; vectors (norm weights) lie
    around the centre of their spec, and integers are those that the config makes. A tensor's values depend on the seed,
    its module's name and its shape alone. `optional` are fields that a format may have or not, to be written as well.
    """
    tensors: dict[str, Tagged] = {}
    for _, spec in flatten(tree):
        for module in spec.modules():
            packed = _packed(spec, module, seed, optional)
            for array in module.arrays:
                if array.field in packed:
                    tensors[array.tensor] = (array.packed.tag, array.part(packed[array.field]))
    return tensors


def _packed(spec: TensorSpec, module: StoredModule, seed: int, optional: Collection[str]) -> dict[str, np.ndarray]:
    """The packed arrays of one module."""
    codec, shape = spec.codec, module.shape
    if spec.values:
        return {"values": np.array(spec.values, np.int64).reshape(shape)}
    if isinstance(codec, EXL3):
        return _trellis(codec, shape, seed, module.name)
    noise = gaussian(shape, seed, module.name)
    values = spec.centre + noise / 8 if len(shape) == 1 else noise / np.sqrt(shape[-1])
    arrays = codec.encode(values.astype(np.float32))
    for name, array in codec.arrays(shape).items():
        if name in optional and name not in arrays and array.optional:
            arrays[name] = _optional(codec, shape, name).astype(array.dtype).reshape(array.shape)
    return arrays


def _optional(codec: Format, shape: Shape, name: str) -> np.ndarray:
    """The values of a field that a release may lack: groups in plain order, or a scale of activations."""
    if name == "g_idx" and isinstance(codec, GPTQ):
        return np.arange(shape[-1]) // codec.per_scale
    return np.array(1 / 64)


def _trellis(codec: EXL3, shape: Shape, seed: int, module: str) -> dict[str, np.ndarray]:
    """An EXL3 weight of random bits: any are a trellis, and a search for given values takes a second per 30,000."""
    out: dict[str, np.ndarray] = {}
    for name, array in codec.arrays(shape).items():
        if name == "marker":
            out[name] = np.array(MARKERS[array.suffix], np.uint32).view(np.int32)
        elif array.dtype == np.float16:
            signs = np.sign(gaussian(array.shape, seed, f"{module}.{name}"))
            out[name] = (signs / np.sqrt(shape[-1]) if name == "suh" else signs).astype(np.float16)
        else:
            words = np.random.PCG64(np.random.SeedSequence([seed, *module.encode()])).random_raw(math.prod(array.shape))
            out[name] = (words >> np.uint64(48)).astype(np.uint16).view(np.int16).reshape(array.shape)
    return out


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
