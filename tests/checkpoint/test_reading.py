"""Reading in parallel: equal bytes however they are cut, the cache dropped behind, and nothing left after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint import filling, reading
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_weights
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import format_named

TREE: SpecTree = {
    "embed": TensorSpec("embed", (8192, 64), ("vocab", "embed")),
    "norm": TensorSpec("layers.{layer}.norm", (64,), ("embed",), numbers=(0, 1, 2, 3)),
    "coded": TensorSpec("layers.{layer}.coded", (64, 64), ("heads", "embed"), "nvfp4_csf", numbers=(0, 1, 2, 3)),
    "packed": TensorSpec("layers.{layer}.packed", (64, 64), ("heads", "embed"), "int4_g64", numbers=(0, 1, 2, 3)),
    "columns": TensorSpec(
        "layers.{layer}.columns", (64, 128), ("heads", "embed"), "gptq_int4_g128", numbers=(0, 1, 2, 3)
    ),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("written")
    write_weights(TREE, directory, seed=1, shards=3)
    (directory / "config.json").write_text("{}")
    return directory


@pytest.fixture
def checkpoint(written: Path, tmp_path: Path) -> Checkpoint:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return Checkpoint.open(tmp_path)


def bytes_of(weights: dict) -> dict[str, bytes]:  # type: ignore[type-arg]
    return {f"{path}.{name}": a.tobytes() for path, weight in weights.items() for name, a in weight.arrays.items()}


@pytest.mark.parametrize(
    ("piece", "threads", "scratch"), [(61, 2, 0), (4096, 4, 0), (1000, 3, 1 << 30), (1 << 30, 1, 0)]
)
def test_M3_the_same_bytes_however_the_files_are_cut(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, piece: int, threads: int, scratch: int
) -> None:
    tree = {key: spec for key, spec in TREE.items() if key != "embed"}
    monkeypatch.setattr(reading, "PIECE", piece)
    monkeypatch.setattr(filling, "SCRATCH", scratch)
    weights = load_weights(tree, checkpoint, threads=threads)
    assert (weights["norm"].arrays["values"][2] == checkpoint.read("layers.2.norm.weight")).all()
    monkeypatch.undo()
    assert bytes_of(weights) == bytes_of(load_weights(tree, checkpoint))


def test_what_is_held_in_another_format_is_converted_layer_by_layer(checkpoint: Checkpoint) -> None:
    weights = load_weights(TREE, checkpoint)
    assert [weights[name].format for name in ("coded", "packed", "columns")] == ["nvfp4", "int4_g64", "int4_g128_f16"]
    for name in ("coded", "columns"):
        spec = TREE[name]
        assert isinstance(spec, TensorSpec)
        for layer in range(4):
            module = f"layers.{layer}.{name}"
            stored = {
                field: checkpoint.read(packed.tensor(module))
                for field, packed in spec.codec.arrays(spec.shape).items()
                if packed.tensor(module) in checkpoint.tensors
            }
            one = {field: array[layer] for field, array in weights[name].arrays.items()}
            held = format_named(weights[name].format)
            assert (held.decode(one, spec.shape) == spec.codec.decode(stored, spec.shape)).all()


def test_M3_the_page_cache_is_dropped_behind_every_tensor(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("the system takes no advice on its page cache")
    dropped: dict[str, set[int]] = {}

    def advise(file: int, offset: int, count: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        name = Path(os.readlink(f"/proc/self/fd/{file}")).name
        dropped.setdefault(name, set()).update(range(offset // reading.PAGE, -(-(offset + count) // reading.PAGE)))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    load_weights(TREE, checkpoint)
    for stored in checkpoint.tensors.values():
        first, last = stored.offset, stored.offset + stored.info.nbytes - 1
        assert {first // reading.PAGE, last // reading.PAGE} <= dropped[stored.shard]


def test_M3_the_peak_is_the_weights_and_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (256, 512)
    tree: SpecTree = {
        "plain": TensorSpec("plain.{layer}", shape, ("heads", "embed"), numbers=tuple(range(8))),
        "columns": TensorSpec("columns.{layer}", shape, ("heads", "embed"), "gptq_int4_g128", numbers=tuple(range(8))),
    }
    write_weights(tree, tmp_path, seed=0)
    (tmp_path / "config.json").write_text("{}")
    checkpoint = Checkpoint.open(tmp_path)
    monkeypatch.setattr(filling, "SCRATCH", 0)
    load_weights(tree, checkpoint, layers=(0,))
    tracemalloc.start()
    weights = load_weights(tree, checkpoint)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held > sum(a.nbytes for weight in weights.values() for a in weight.arrays.values())
    # A GPTQ module is read, transposed and copied: three times its 66 KB, beside the 2.6 MB of weights.
    assert peak - held < 5 * 256 * 512 // 2 + 50_000


def broken_after(calls: int, failure: Callable[[], int]) -> Callable[..., int]:
    """preadv that works so often and then does as `failure` does."""
    left, lock, real = [calls], threading.Lock(), os.preadv

    def preadv(*arguments: object) -> int:
        with lock:
            left[0] -= 1
        return real(*arguments) if left[0] >= 0 else failure()  # type: ignore[arg-type]

    return preadv


def io_error() -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("failure", "words"),
    [(io_error, r"model-0000\d-of-00003.safetensors: cannot be read: Input/output error"), (lambda: 0, "ends inside")],
)
@pytest.mark.parametrize("calls", [0, 1, 40])
def test_a_file_that_fails_in_the_middle_leaves_nothing_behind(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, calls: int, failure: Callable[[], int], words: str
) -> None:
    monkeypatch.setattr(os, "preadv", broken_after(calls, failure))
    monkeypatch.setattr(reading, "PIECE", 1 << 15)
    files, running = len(os.listdir("/proc/self/fd")), threading.active_count()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    with pytest.raises(CheckpointError, match=words) as kept:
        load_weights(TREE, checkpoint)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept.value.__traceback__ is not None  # the error is kept, and with it every frame it passed through
    assert after - before < 200_000  # the weights are 1.1 MB
    assert len(os.listdir("/proc/self/fd")) == files
    assert threading.active_count() == running


def test_a_shard_that_is_gone_is_named(checkpoint: Checkpoint) -> None:
    (checkpoint.directory / checkpoint.shards[-1]).unlink()
    with pytest.raises(CheckpointError, match=f"{checkpoint.shards[-1]}: cannot be read: No such file"):
        load_weights(TREE, checkpoint)


def test_values_that_are_no_weight_name_their_module(checkpoint: Checkpoint) -> None:
    stored = checkpoint.tensors["layers.3.packed.weight_shape"]
    with (checkpoint.directory / stored.shard).open("r+b") as file:
        file.seek(stored.offset)
        file.write(np.array([64, 63], np.int64).tobytes())
    with pytest.raises(CheckpointError, match=r"module layers\.3\.packed: int4_g64: weight_shape is \[64, 63\]"):
        load_weights(TREE, checkpoint)


def test_an_interrupt_in_the_middle_ends_the_threads(checkpoint: Checkpoint) -> None:
    def progress(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    running = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        load_weights(TREE, checkpoint, progress)
    assert threading.active_count() == running
