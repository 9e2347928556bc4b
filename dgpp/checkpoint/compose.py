"""The GLM-5.3-Flash hybrid from its two sources: the FP8 release, with the routed experts of an NVFP4 release put in.

Nothing is computed: every tensor is copied as it is. The experts of the sparse layers of the model come from the NVFP4
release (compressed-tensors: codes, block scales, a global scale that divides); everything else, with the draft layer
and its experts, the attention, the shared experts and the router, comes from the FP8 release. The result says so with
`quant_method: "dgpp_mixed"`, as the release GLM-5.3-Flash-NVFP4-FP8 does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint, StoredTensor
from dgpp.checkpoint.writing import copy_other_files, new_directory, write_files, write_shards
from dgpp.formats import Format, format_named

SHARD_BYTES = 5_000_000_000
EXPERT = re.compile(
    r"(?P<module>.*\blayers\.(?P<layer>\d+)\.mlp\.experts\.(?P<expert>\d+)\.(?:gate|up|down)_proj)\.\w+"
)
PROJECTIONS = 3  # of an expert
BASE_FORMAT, EXPERT_FORMAT = "fp8_block128", "nvfp4_divisor"

NOT_SHAPE = ("quantization_config", "dtype", "torch_dtype", "transformers_version")
"""Fields of text_config that two exports of one model may differ in."""


@dataclass(frozen=True)
class Plan:
    """Which source every tensor comes from: `sources` by name, ascending. `layers` have their experts replaced."""

    base: Checkpoint
    experts: Checkpoint
    sources: Mapping[str, Checkpoint]
    layers: tuple[int, ...]
    replaced: int  # expert matrices

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(source.tensors[name].info.nbytes for name, source in self.sources.items())

    @property
    def config(self) -> dict[str, Any]:
        """config.json of the result."""
        quantization = {
            **self.base.config["quantization_config"],
            "quant_method": "dgpp_mixed",
            "routed_experts": {
                "format": "nvfp4-pack-quantized",
                "group_size": 16,
                "num_bits": 4,
                "layers": list(self.layers),
            },
            "mtp_layer": {"source": "base"},
            "dsa_attention": {"source": "base"},
        }
        return {**self.base.config, "quantization_config": quantization}


def plan(base: Checkpoint, experts: Checkpoint) -> Plan:
    """The plan of a hybrid. Reads no weights.

    Raises CheckpointError when the sources are not the same model, the base is not an FP8 release, an expert is missing
    in either, or its tensors do not have the dtypes and shapes of the formats.
    """
    text = _same_model(base, experts)
    method = (base.config.get("quantization_config") or {}).get("quant_method")
    if method != "fp8":
        raise CheckpointError(f"{base.directory}: quant_method is {method!r}; the base must be the FP8 release")
    layers = _sparse_layers(base, text)
    count = text.get("n_routed_experts")
    if not isinstance(count, int) or count < 1:
        raise CheckpointError(
            f"{base.directory}/config.json: n_routed_experts must be a positive integer, got {count!r}"
        )
    sources = dict.fromkeys(base.tensors, base)
    modules = _expert_modules(base, layers, count)
    for module in modules:
        shape = _taken(base, module, format_named(BASE_FORMAT), sources)
        _put(experts, module, format_named(EXPERT_FORMAT), shape, sources)
    return Plan(base, experts, dict(sorted(sources.items())), layers, len(modules))


def compose(
    planned: Plan, target: Path, shard_bytes: int = SHARD_BYTES, progress: Callable[[int, int], None] | None = None
) -> None:
    """Writes the hybrid into the new directory `target`, in shards ordered by name, and reads it back to compare.

    `progress` is called with the bytes written and compared so far, and in all. Raises CheckpointError when `target`
    holds files, cannot be written, or what was written differs from its source; then `target` is not there.
    """
    total, done = 2 * planned.nbytes, 0

    def count(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    tensors = ((name, (at.tensors[name].info.tag, at.read(name))) for name, at in planned.sources.items())
    with new_directory(target) as directory:
        copy_other_files(planned.base.directory, directory, but=("config.json",))
        write_files(directory, {"config.json": planned.config})
        write_shards(directory, tensors, shard_bytes, count)
        written = Checkpoint.open(directory)
        for name, source in planned.sources.items():
            _compare(name, source, written)
            count(source.tensors[name].info.nbytes)


def _same_model(base: Checkpoint, experts: Checkpoint) -> Mapping[str, Any]:
    """The text_config, which is the same in both."""
    texts = [checkpoint.config.get("text_config", checkpoint.config) for checkpoint in (base, experts)]
    ours, theirs = ({key: value for key, value in text.items() if key not in NOT_SHAPE} for text in texts)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            raise CheckpointError(
                f"{base.directory} and {experts.directory} are not the same model: {key} of config.json is "
                f"{ours.get(key)!r} and {theirs.get(key)!r}"
            )
    return texts[0]


def _sparse_layers(base: Checkpoint, text: Mapping[str, Any]) -> tuple[int, ...]:
    """The layers of the model (without the draft) that have routed experts."""
    kinds, count, dense = text.get("mlp_layer_types"), text.get("num_hidden_layers"), text.get("first_k_dense_replace")
    if isinstance(kinds, list):
        layers = tuple(layer for layer, kind in enumerate(kinds) if kind == "sparse")
    elif isinstance(count, int) and isinstance(dense, int):
        layers = tuple(range(dense, count))
    else:
        raise CheckpointError(f"{base.directory}/config.json says neither mlp_layer_types nor first_k_dense_replace")
    if not layers:
        raise CheckpointError(f"{base.directory}/config.json: no layer has routed experts")
    return layers


def _expert_modules(base: Checkpoint, layers: tuple[int, ...], count: int) -> list[str]:
    """The projections of every expert of `layers`. Raises CheckpointError when their number is not what it must be."""
    found: dict[str, tuple[int, int]] = {}
    for name in base.tensors:
        if (match := EXPERT.fullmatch(name)) and int(match["layer"]) in layers:
            found[match["module"]] = int(match["layer"]), int(match["expert"])
    for layer in layers:
        experts = [expert for at, expert in found.values() if at == layer]
        if len(experts) != PROJECTIONS * count or set(experts) != set(range(count)):
            raise CheckpointError(
                f"{base.directory}: layer {layer} has {len(experts)} projections of {len(set(experts))} experts, not "
                f"{PROJECTIONS} each of {count}"
            )
    return sorted(found)


def _taken(base: Checkpoint, module: str, format: Format, sources: dict[str, Checkpoint]) -> tuple[int, ...]:
    """The logical shape of an expert of the base, whose tensors are taken out of `sources`."""
    shape = base.find(f"{module}.weight").info.shape
    for packed in format.arrays(shape).values():
        _check(base, packed.tensor(module), packed.tag, packed.shape)
        del sources[packed.tensor(module)]
    return shape


def _put(experts: Checkpoint, module: str, format: Format, shape: tuple[int, ...], to: dict[str, Checkpoint]) -> None:
    for packed in format.arrays(shape).values():
        if packed.resident:
            _check(experts, packed.tensor(module), packed.tag, packed.shape)
            to[packed.tensor(module)] = experts


def _check(checkpoint: Checkpoint, name: str, tag: str, shape: tuple[int, ...]) -> StoredTensor:
    stored = checkpoint.find(name)
    if (stored.info.tag, stored.info.stored_shape) != (tag, shape):
        raise CheckpointError(
            f"{checkpoint.directory}: {name} is {stored.info.tag} {list(stored.info.shape)}, not {tag} {list(shape)}"
        )
    return stored


def _compare(name: str, source: Checkpoint, written: Checkpoint) -> None:
    for ours, theirs in zip(_chunks(written.read(name)), _chunks(source.read(name)), strict=True):
        if not np.array_equal(ours, theirs):
            raise CheckpointError(f"{name} was written, but reads back differently from {source.directory}")


def _chunks(array: np.ndarray, size: int = 16 << 20) -> Iterator[np.ndarray]:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(data), size):
        yield data[start : start + size]
