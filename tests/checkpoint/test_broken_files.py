"""A quantised checkpoint with one file broken: a clear error, no model, and the memory back."""

from __future__ import annotations

import gc
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_fixture
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.models import FAMILIES

FAMILY = FAMILIES["llama"]
NAME = "model.layers.0.mlp.up_proj.weight"


def last_shard(directory: Path) -> Path:
    return max(directory.glob("*.safetensors"))


def edited(shard: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites the header of a shard."""
    content = shard.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    shard.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def truncated(directory: Path) -> None:
    shard = last_shard(directory)
    shard.write_bytes(shard.read_bytes()[:-1000])


def overlapping(directory: Path) -> None:
    def edit(header: dict[str, Any]) -> None:
        first, second = sorted(header.keys() - {"__metadata__"}, key=lambda name: header[name]["data_offsets"])[:2]
        _, stop = header[first]["data_offsets"]
        size = header[second]["data_offsets"][1] - header[second]["data_offsets"][0]
        header[second]["data_offsets"] = [stop - 1, stop - 1 + size]

    edited(last_shard(directory), edit)


def twice(directory: Path) -> None:
    (directory / "again.safetensors").write_bytes(last_shard(directory).read_bytes())


def twice_in_a_header(directory: Path) -> None:
    shard = last_shard(directory)
    content = shard.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    text = content[8 : 8 + length].rstrip()
    name, entry = next(iter(json.loads(text).items()))
    text = text[:-1] + b"," + json.dumps({name: entry}).encode()[1:]
    shard.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def wrong_tag(directory: Path) -> None:
    def edit(header: dict[str, Any]) -> None:
        for name, entry in header.items():
            if entry.get("dtype") == "F8_E8M0" and name.startswith("model.layers.1.mlp"):
                entry["dtype"] = "I8"

    for shard in directory.glob("*.safetensors"):
        edited(shard, edit)


def huge_header(directory: Path) -> None:
    shard = last_shard(directory)
    shard.write_bytes(struct.pack("<Q", 5 * 2**30) + shard.read_bytes()[8:])


BREAK: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated shard": (truncated, "truncated; download it again"),
    "overlapping offsets": (overlapping, "overlap"),
    "one tensor in two files": (twice, r"is in both .* and .*; remove the file"),
    "one tensor twice in a header": (twice_in_a_header, "occurs twice in the header"),
    "wrong dtype tag": (wrong_tag, r"module model\.layers\.1\.mlp\.\w+: its 'scale' is stored as I8; it would be"),
    "5 GB header": (huge_header, "the header should be 5368709120 bytes, longer than the file"),
}


def load(directory: Path) -> Any:
    checkpoint = Checkpoint.open(directory)
    return load_weights(resolve_tree(FAMILY.abstract(FAMILY.config(checkpoint.config)), checkpoint), checkpoint)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_fixture(FAMILY, "fp8-ue8m0", tmp_path / "model")


@pytest.mark.parametrize("what", BREAK)
def test_a_broken_file_is_a_clear_error(directory: Path, what: str) -> None:
    assert load(directory)
    damage, words = BREAK[what]
    damage(directory)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=words) as caught:
        load(directory)
    assert str(directory) in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 2**20  # headers and JSON: no weight was ever allocated
    tracemalloc.stop()


@pytest.mark.parametrize("how", ["gone", "shorter", "a directory"])
def test_a_file_that_breaks_after_it_was_opened_gives_the_memory_back(directory: Path, how: str) -> None:
    checkpoint = Checkpoint.open(directory)
    tree = resolve_tree(FAMILY.abstract(FAMILY.config(checkpoint.config)), checkpoint)
    shard = last_shard(directory)
    content = shard.read_bytes()
    shard.unlink()
    if how == "shorter":
        shard.write_bytes(content[:-1])
    elif how == "a directory":
        shard.mkdir()
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=shard.name):
        load_weights(tree, checkpoint)
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak > 2**20  # it was in the middle of the load
    assert kept < 2**18
