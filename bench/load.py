"""How fast and how lean a checkpoint is loaded: a synthetic one, beside a plain read of the same files in the same run.

    python -m bench.load --record

Writes about 4 GB of NVFP4 experts and BF16 into a temporary directory and loads it on two cores, each load in a process
of its own, taking turns with plain reads into one reused buffer. "Cold": the files were dropped from the page cache of
this machine before; what lies below it (a disk's own cache, a virtual machine's host) is as it is, so the plain read of
the same turn is the measure. "Cached" is the same once more, without dropping. A load also has to be given its memory:
"fresh memory" is the first touch of as many bytes in a new process, which a reused buffer does not pay for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from dgpp.checkpoint.reading import PIECE, READERS, drop_cached
from dgpp.ops.records import write_record

GIGABYTES = 4.0
THREADS = 2  # cores
LAYER_BYTES = 2 * 1024 * 2048 * 16 * 9 // 16 + 2 * 2048 * 2048  # two expert tensors in NVFP4, one linear in BF16


def write_checkpoint(directory: Path, gigabytes: float) -> dict[str, Any]:
    """Writes a checkpoint of about that size, and returns the tree's parameters.

    All layers and experts have the same weights, since making random ones takes far longer than loading them.
    """
    import numpy as np

    from dgpp.checkpoint.fixture import gaussian, write_json
    from dgpp.checkpoint.spec import flatten
    from dgpp.checkpoint.writing import write_shards

    layers = max(1, round(gigabytes * 1e9 / LAYER_BYTES))
    tree = tree_of(layers)
    arrays: dict[str, dict[str, Any]] = {}
    for path, spec in flatten(tree):
        one = spec.codec.encode(gaussian(spec.shape[-2:], 0, path).astype(np.float32) / 32)
        lead = spec.shape[:-2]
        arrays[path] = {name: np.ascontiguousarray(np.broadcast_to(a, (*lead, *a.shape))) for name, a in one.items()}

    def tensors() -> Any:
        for layer in range(layers):
            for path, spec in flatten(tree):
                for field, packed in spec.codec.arrays(spec.shape).items():
                    if field in arrays[path]:
                        yield packed.tensor(spec.source.format(layer=layer)), (packed.tag, arrays[path][field])

    write_json(directory / "config.json", {})
    write_shards(directory, tensors(), 1_000_000_000)
    return {"layers": layers}


def tree_of(layers: int) -> dict[str, Any]:
    """Experts as one fused tensor and a plain linear in every layer."""
    from dgpp.checkpoint.spec import TensorSpec

    def spec(name: str, shape: tuple[int, ...], format: str) -> TensorSpec:
        return TensorSpec(
            "model.layers.{layer}." + name, shape, ("x",) * len(shape), format, numbers=tuple(range(layers))
        )

    return {
        "up": spec("experts.up", (16, 1024, 2048), "nvfp4"),
        "down": spec("experts.down", (16, 2048, 1024), "nvfp4"),
        "o_proj": spec("o_proj", (2048, 2048), "bf16"),
    }


def load_once(directory: Path, layers: int, threads: int) -> dict[str, float]:
    """Seconds and bytes of one load in this process, and its peak resident memory above that before the load."""
    from dgpp.checkpoint.load import load_weights
    from dgpp.checkpoint.reader import Checkpoint

    checkpoint = Checkpoint.open(directory)
    tree = tree_of(layers)
    Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
    before = peak_resident()
    started = time.perf_counter()
    weights = load_weights(tree, checkpoint, threads=threads)
    seconds = time.perf_counter() - started
    peak = peak_resident()
    nbytes = sum(array.nbytes for weight in weights.values() for array in weight.arrays.values())
    return {"seconds": seconds, "bytes": nbytes, "peak_bytes": peak - before}


def peak_resident() -> int:
    """Bytes of the largest resident memory of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def read_once(files: Sequence[Path], threads: int) -> float:
    """Seconds to read files once, in pieces as the loader reads them, into a buffer of each thread that is reused."""
    started = time.perf_counter()
    ranges = [(path, start) for path in files for start in range(0, path.stat().st_size, PIECE)]

    def read(part: int) -> None:
        buffer = bytearray(PIECE)
        for path, start in ranges[part::threads]:
            with path.open("rb", buffering=0) as file:
                os.preadv(file.fileno(), [buffer], start)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    return time.perf_counter() - started


def touch_once(nbytes: int, threads: int) -> float:
    """Seconds until this process has `nbytes` of new memory, as the loader allocates it, touched by several threads."""
    import numpy as np

    from dgpp.checkpoint.load import aligned_empty
    from dgpp.checkpoint.reading import PAGE

    started = time.perf_counter()
    memory = aligned_empty((nbytes,), np.dtype(np.uint8))
    parts = np.array_split(memory, threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: part[::PAGE].fill(0), parts))
    return time.perf_counter() - started


def drop(files: Sequence[Path]) -> None:
    """Drops files from the page cache, once they are on the disk."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            drop_cached(file.fileno(), 0, path.stat().st_size)


def measured(directory: Path, layers: int, readers: int, repeats: int) -> list[dict[str, Any]]:
    """The record's rows."""
    files = sorted(directory.glob("*.safetensors"))
    nbytes = sum(path.stat().st_size for path in files)
    reads: dict[str, list[float]] = {"cold": [], "cached": []}
    loads: dict[str, list[dict[str, float]]] = {"cold": [], "cached": []}
    touches: list[float] = []

    def child(*arguments: object) -> Any:
        command = [sys.executable, "-m", "bench.load", "--child", *map(str, arguments)]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    for _ in range(repeats):
        touches.append(child("touch", nbytes, readers))
        for state in ("cold", "cached"):
            if state == "cold":
                drop(files)
            reads[state].append(read_once(files, readers))  # leaves the files cached
            if state == "cold":
                drop(files)
            loads[state].append(child(directory, layers, readers))
            read_once(files, readers)
    rows = [_row("fresh memory", min(touches), nbytes, touches)]
    for state in ("cold", "cached"):
        seconds, best = min(reads[state]), min(loads[state], key=lambda load: load["seconds"])
        rows.append(_row(f"plain read, {state}", seconds, nbytes, reads[state]))
        row = _row(f"load, {state}", best["seconds"], int(best["bytes"]), [load["seconds"] for load in loads[state]])
        peak = max(load["peak_bytes"] for load in loads[state])
        row["of_plain_read_ratio"] = row["gbps"] / rows[-1]["gbps"]
        row["peak_bytes"] = int(peak)
        row["peak_of_weights_ratio"] = peak / best["bytes"]
        rows.append(row)
    return rows


def _row(name: str, seconds: float, nbytes: int, all_seconds: Sequence[float]) -> dict[str, Any]:
    return {
        "name": name,
        "seconds": seconds,
        "median_seconds": median(all_seconds),
        "bytes": nbytes,
        "gbps": nbytes / seconds / 1e9,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES)
    parser.add_argument("--readers", type=int, default=READERS, help="threads of the loader (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to make the temporary directory")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/load.json")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        what, count, readers = options.child
        if what == "touch":
            print(json.dumps(touch_once(int(count), int(readers))))
        else:
            print(json.dumps(load_once(Path(what), int(count), int(readers))))
        return 0
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:THREADS])
    parent = options.directory or Path(tempfile.gettempdir())
    free = shutil.disk_usage(parent).free
    if free < 1.2e9 * options.gigabytes:
        print(f"load: {parent} has {free / 1e9:.1f} GB free, too little for {options.gigabytes} GB", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        layers = write_checkpoint(Path(temporary), options.gigabytes)["layers"]
        rows = measured(Path(temporary), layers, options.readers, options.repeats)
    for row in rows:
        peak = f"  peak {row['peak_of_weights_ratio']:.4f} of the weights" if "peak_bytes" in row else ""
        print(f"{row['name']:20} {row['seconds']:7.2f} s  {row['gbps']:6.2f} GB/s{peak}")
    if options.record:
        extra = {"cores": len(cores[:THREADS]), "readers": options.readers, "repeats": options.repeats}
        print(write_record("load", rows, extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
