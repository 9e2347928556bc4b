"""A checkpoint directory as published: its JSON files, and one table of all tensors over all shards.

The table is the union of the headers of every `*.safetensors` file in the directory. The index
(`model.safetensors.index.json`) is checked against it and never trusted instead of it: it may name a tensor that its
shard does not hold (refused), and a shard may hold tensors that the index forgot (kept and reported).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reading import pieces, read_piece, unreadable
from dgpp.checkpoint.safetensors import TensorInfo, read_header

INDEX = "model.safetensors.index.json"

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint: its shard, its header entry, and the byte of the shard where it starts."""

    shard: str
    info: TensorInfo
    offset: int


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint. Opening reads JSON files and headers only; the weights are read by name."""

    directory: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]  # {} when the release has none
    tokenizer_files: dict[str, Path]  # those of TOKENIZER_FILES that exist
    shards: tuple[str, ...]
    tensors: dict[str, StoredTensor]
    unindexed: tuple[str, ...]  # tensors that the index does not list, though there is one
    _maps: dict[str, mmap.mmap] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, directory: Path | str) -> Checkpoint:
        """The checkpoint in `directory`.

        Raises CheckpointError for a missing or broken config.json, no weights, a missing or damaged shard, a tensor
        that the index lists but its shard does not hold, and a tensor that two shards hold.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise CheckpointError(f"{directory} is not a directory")
        if not (directory / "config.json").is_file():
            raise CheckpointError(f"{directory} has no config.json: not a model's directory, or not fully downloaded")
        generation = directory / "generation_config.json"
        index = _read_index(directory)
        shards = _shard_names(directory, index)
        tensors = _union(directory, shards)
        _check_index(directory, index, tensors)
        return cls(
            directory=directory,
            config=read_json(directory / "config.json"),
            generation_config=read_json(generation) if generation.is_file() else {},
            tokenizer_files={name: directory / name for name in TOKENIZER_FILES if (directory / name).is_file()},
            shards=shards,
            tensors=tensors,
            unindexed=tuple(name for name in tensors if name not in index) if index else (),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(stored.info.nbytes for stored in self.tensors.values())

    def find(self, name: str) -> StoredTensor:
        """The table's entry of a tensor. Raises CheckpointError when no shard holds it."""
        try:
            return self.tensors[name]
        except KeyError:
            raise CheckpointError(f"{self.directory}: no shard holds tensor {name!r}") from None

    def read(self, name: str) -> np.ndarray:
        """A tensor as a read-only view of the mapped shard: no copy, and no memory but the pages that are touched.

        The dtype is the tag's (bfloat16 through ml_dtypes); FP8, FP6, FP4 and scale exponents come as uint8, in the
        `stored_shape`. The view keeps the mapping alive and may lie at any byte offset.
        """
        stored = self.find(name)
        info = stored.info
        count = info.nbytes // info.dtype.itemsize
        if count == 0:
            return np.empty(info.stored_shape, info.dtype)
        view = np.frombuffer(self._map(stored.shard), info.dtype, count, stored.offset)
        return view.reshape(info.stored_shape)

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Reads a tensor from its file straight into `out`, a contiguous array of its dtype and stored shape.

        Raises CheckpointError when the file has become shorter, ValueError when `out` does not fit.
        """
        stored = self.find(name)
        info = stored.info
        if out.dtype != info.dtype or out.shape != info.stored_shape or not out.flags.c_contiguous:
            raise ValueError(f"{name} is {info.dtype} {info.stored_shape}; cannot read it into {out.dtype} {out.shape}")
        path = self.directory / stored.shard
        try:
            with path.open("rb", buffering=0) as file:
                for piece in pieces(path, stored.offset, out.reshape(-1).view(np.uint8).data, name):
                    if problem := read_piece(file.fileno(), piece):
                        raise problem
        except OSError as error:
            raise unreadable(path, error) from error

    def _map(self, shard: str) -> mmap.mmap:
        if shard not in self._maps:
            with (self.directory / shard).open("rb") as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]


def _read_index(directory: Path) -> dict[str, str]:
    """The index's tensor -> shard map; empty when there is no index."""
    path = directory / INDEX
    if not path.is_file():
        return {}
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map must map tensors to files")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_inside(shard):
            raise CheckpointError(f"{path}: weight_map[{name!r}] is {shard!r}, not a safetensors file of the directory")
    return weight_map


def _is_inside(shard: str) -> bool:
    path = PurePosixPath(shard)
    return path.suffix == ".safetensors" and not path.is_absolute() and ".." not in path.parts


def _shard_names(directory: Path, index: Mapping[str, str]) -> tuple[str, ...]:
    """All shards, sorted: those of the index and every other safetensors file beside it. Refuses missing ones."""
    present = {path.name for path in directory.glob("*.safetensors") if path.is_file()}
    wanted = set(index.values()) | set(_numbered_siblings(present))
    missing = sorted(name for name in wanted if not (directory / name).is_file())
    if missing:
        raise CheckpointError(
            f"{directory}: {_some(missing)} of {len(wanted)} shards missing; finish the download (`dgpp pull` for a "
            f"hub id) or copy the rest"
        )
    if not present | wanted:
        others = sorted(path.name for path in directory.iterdir() if path.suffix in {".bin", ".gguf", ".pt", ".pth"})
        hint = f"; it has {_some(others)}, which is another format" if others else ""
        raise CheckpointError(f"{directory} has no *.safetensors file{hint}")
    return tuple(sorted(present | wanted))


def _numbered_siblings(present: Iterable[str]) -> Iterable[str]:
    """All names of a series NAME-00001-of-00003.safetensors of which one is present."""
    for name in present:
        if match := re.fullmatch(r"(.*-)(\d{5})(-of-)(\d{5})(\.safetensors)", name):
            head, _, middle, total, tail = match.groups()
            yield from (f"{head}{number:05d}{middle}{total}{tail}" for number in range(1, int(total) + 1))


def _union(directory: Path, shards: Iterable[str]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        header = read_header(directory / shard)
        for name, info in header.tensors.items():
            if name in tensors:
                raise CheckpointError(
                    f"{directory}: tensor {name!r} is in both {tensors[name].shard} and {shard}; remove the file that "
                    f"does not belong to this release"
                )
            tensors[name] = StoredTensor(shard, info, header.data_start + info.start)
    return tensors


def _check_index(directory: Path, index: Mapping[str, str], tensors: Mapping[str, StoredTensor]) -> None:
    absent = [name for name, shard in index.items() if name not in tensors or tensors[name].shard != shard]
    if not absent:
        return
    name = absent[0]
    where = f"it is in {tensors[name].shard}" if name in tensors else "no shard holds it"
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    raise CheckpointError(
        f"{directory}: {INDEX} says that tensor {name!r}{more} is in {index[name]}, but {where}; "
        f"download the shard again"
    )


def _some(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
