"""What the lossless 12-bit form saves on real weights, and that it loses nothing.

    python -m tests.real.smollm2 smollm2
    python -m bench.bf12 smollm2 --name SmolLM2-135M-Instruct --record

Every matrix of a BF16 checkpoint is packed and unpacked. Those whose K is not a multiple of 1024, which the form needs,
are taken as rows of 1024 of their values in order: the same values, so the same size, though no kernel could use them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.reader import Checkpoint
from dgpp.formats import format_named
from dgpp.ops.records import write_record

BLOCK = 1024


def packed_bytes(values: np.ndarray) -> int:
    """Bytes of a bfloat16 tensor in the 12-bit form. Raises ValueError when unpacking gives other bits."""
    rows = values if values.shape[-1] % BLOCK == 0 else values.reshape(-1, BLOCK)
    codec = format_named("bf12")
    arrays = codec.encode(rows.astype(np.float32))
    back = codec.decode(arrays, rows.shape).astype(values.dtype)
    if back.tobytes() != np.ascontiguousarray(rows).tobytes():
        raise ValueError("the 12-bit form gave back other bits")
    return sum(array.nbytes for array in arrays.values())


def rows_of(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """A row per kind of matrix, and one for all."""
    found: dict[str, list[int]] = {}
    for name in checkpoint.tensors:
        values = checkpoint.read(name)
        if values.ndim == 2:
            kind = re.sub(r"\.\d+\.", ".*.", name)
            for key in (kind, "all matrices"):
                total = found.setdefault(key, [0, 0, 0])
                total[0] += 1
                total[1] += values.size
            packed = packed_bytes(values)
            found[kind][2] += packed
            found["all matrices"][2] += packed
    return [
        {
            "name": name,
            "matrices_count": count,
            "weight_bits": 8 * nbytes / weights,
            "bytes": nbytes,
            "saved_percent": 100 * (1 - nbytes / (2 * weights)),
        }
        for name, (count, weights, nbytes) in found.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.bf12", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model", type=Path, help="directory of a BF16 snapshot")
    parser.add_argument("--name", help="how the record calls the model")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/bf12.json")
    options = parser.parse_args(arguments)
    rows = rows_of(Checkpoint.open(options.model))
    for row in rows:
        print(f"{row['name']:45} {row['weight_bits']:6.3f} bits {row['bytes']:12,} bytes, {row['saved_percent']:.2f} %")
    if options.record:
        print(write_record("bf12", rows, extra={"model": options.name or str(options.model)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
