"""Writing a checkpoint's directory: tensors into numbered shards as they come, all of it there at the end or nothing.

The directory is filled beside its place under another name and renamed when it is complete, so that a run that fails,
or is stopped, leaves no half a checkpoint. No more than one shard of tensors is in memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_json
from dgpp.checkpoint.reader import INDEX
from dgpp.checkpoint.safetensors import write

SHARD_BYTES = 4_000_000_000
METADATA = {"format": "pt"}  # the framework; transformers refuses files without it

Tagged = tuple[str, np.ndarray]
"""A header tag and the array of its dtype."""


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which becomes `target` when the block ends without an error and is removed otherwise.

    Raises CheckpointError when `target` holds files already or cannot be made.
    """
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise CheckpointError(f"{target} exists already; give a new directory")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        if target.is_dir():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        raise CheckpointError(f"{error.filename or target}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_shards(
    directory: Path,
    tensors: Iterable[tuple[str, Tagged]],
    shard_bytes: int = SHARD_BYTES,
    done: Callable[[int], object] | None = None,
) -> dict[str, str]:
    """Writes (name, tensor) in their order: model.safetensors, or several shards and their index.

    A shard is closed before the tensor that would make it larger than `shard_bytes`. `done` is called with the bytes of
    every shard that was written. Returns the file of every tensor.
    """
    shards: list[list[str]] = []
    part: dict[str, Tagged] = {}

    def close() -> None:
        nonlocal part
        write(directory / _temporary(len(shards)), part, METADATA)
        shards.append(list(part))
        if done is not None:
            done(sum(array.nbytes for _, array in part.values()))
        part = {}

    total = held = 0
    for name, (tag, array) in tensors:
        if part and held + array.nbytes > shard_bytes:
            close()
            held = 0
        part[name] = (tag, array)
        held, total = held + array.nbytes, total + array.nbytes
    close()
    if len(shards) == 1:
        (directory / _temporary(0)).rename(directory / "model.safetensors")
        return dict.fromkeys(shards[0], "model.safetensors")
    weight_map = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (directory / _temporary(number)).rename(directory / file)
        weight_map.update(dict.fromkeys(names, file))
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})
    return weight_map


def _temporary(number: int) -> str:
    return f"part-{number:05d}"


def copy_other_files(source: Path, target: Path, but: Iterable[str] = ()) -> None:
    """Copies every file that is neither weights, their index, nor named in `but`: tokenizer, templates, licence."""
    for path in sorted(source.iterdir()):
        weights = path.suffix == ".safetensors" or path.name == INDEX
        if path.is_file() and not weights and path.name not in but:
            shutil.copyfile(path, target / path.name)


def write_files(directory: Path, files: Mapping[str, Mapping[str, object]]) -> None:
    """Writes JSON files by name."""
    for name, content in files.items():
        write_json(directory / name, content)
