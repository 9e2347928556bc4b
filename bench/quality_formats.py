"""What each weight format costs in quality: perplexity and divergence from BF16 on a real model and a real text.

    python -m tests.real.smollm2 smollm2
    python -m bench.quality_formats smollm2 --name SmolLM2-135M-Instruct --work DIR --record

All seven linears of every layer are rounded to nearest with the format's own encoder, and used as the format's product
uses them (`bench.llama_float` says how near that is to serving); embedding, head and norms stay as they are. The text
is tests/data/alice.txt in windows that are read separately. DIR keeps what was computed, so a run can be continued.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.llama_float import LINEARS, compared, hidden_states, operand
from dgpp.checkpoint.digests import digest_files, model_digest, model_files
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import TensorSpec
from dgpp.formats import Shape, format_named
from dgpp.formats.bf16 import BFLOAT16
from dgpp.models.llama import FAMILY, LlamaConfig, layer_specs
from dgpp.ops.records import write_record

TEXT = Path(__file__).resolve().parents[1] / "tests" / "data" / "alice.txt"
WINDOW = 512  # tokens of a window with its BOS
WINDOWS = 16

BASE = "bf16"
MEASURED = (
    "nvfp4",
    "mxfp4",
    "int4_g64",
    "fp8_block128",
    "int8_g64",
    "gptq_int4_g128",
    "gptq_int4_g128_asym_v1",
    "nf4i8",
    "mixed346_3",
    "mixed346_4",
    "mixed346_6",
    "mxfp8",
    "fp8_block32_e8m0",
    "fp8_channel",
    "fp8_tensor",
    "int4_g128_f16",
    "int8_g128_f16",
    "gptq_int8_g128",
    "nvfp4_divisor",
    "gptq_int4_g128_asym_v2",
    "fp8_group32_e8m0",
    "fp8_block128_bf16",
    "fp8_block128_e8m0",
    "fp8_channel_f32",
    "fp8_tensor_f32",
    "f16",
)
"""Formats with values or an encoder of their own, in the order in which they are measured."""

PAD = 128
"""Matrices that a format cannot hold are padded with zero columns and, where that is not enough, rows to this."""

INT8_ACTIVATIONS = "the product of this format rounds activations to int8 as well"
E4M3 = "E4M3 keeps three bits after the leading one; evenly spaced int8 codes are nearer to weights of one size"
NOTES = {
    "mxfp8": E4M3,
    "fp8_group32_e8m0": E4M3,
    "mixed346_3": INT8_ACTIVATIONS,
    "mixed346_4": INT8_ACTIVATIONS,
    "mixed346_6": f"{INT8_ACTIVATIONS}; its 64 levels are evenly spaced",
    "int4_g64": "the scale is amax / 7.5, so the largest weight of a group is half a step off; GPTQ's scales meet it",
    "mxfp4": "scales are powers of two, so a group may use little more than half of the range of its codes",
}
"""What explains a format that is worse than one of fewer bits."""


def held_shape(tag: str, shape: Shape) -> Shape:
    """The least padded shape [N, K] that the format can hold. Raises ValueError when padding to 128 is not enough."""
    n, k = shape
    wide, tall = -(-k // PAD) * PAD, -(-n // PAD) * PAD
    for candidate in ((n, k), (n, wide)):
        try:
            format_named(tag).arrays(candidate)
        except ValueError:
            continue
        return candidate
    format_named(tag).arrays((tall, wide))
    return tall, wide


@dataclass(frozen=True)
class Subject:
    """A Llama checkpoint in BF16 and the token ids of the windows [W, T], each with BOS in front."""

    checkpoint: Checkpoint
    config: LlamaConfig
    windows: np.ndarray

    @staticmethod
    def open(directory: Path, windows: int = WINDOWS, window: int = WINDOW) -> Subject:
        """The subject of a snapshot's directory. Raises ValueError when the text is too short."""
        from dgpp.text.tokenizer import Tokenizer

        checkpoint = Checkpoint.open(directory)
        ids = Tokenizer.load(directory).encode(TEXT.read_text(encoding="utf-8"))
        bos = checkpoint.config["bos_token_id"]
        each = window - 1
        if len(ids) < windows * each:
            raise ValueError(f"{TEXT.name} has {len(ids)} tokens; {windows} windows need {windows * each}")
        cut = [[bos, *ids[i * each : (i + 1) * each]] for i in range(windows)]
        return Subject(checkpoint, FAMILY.config(checkpoint.config), np.array(cut))

    def specs(self) -> dict[str, TensorSpec]:
        """The specs of the linears."""
        return {name: spec for name, spec in layer_specs(self.config).items() if name in LINEARS}

    def tensor(self, name: str) -> np.ndarray:
        """A tensor of the checkpoint, without its ".weight"."""
        return self.checkpoint.read(f"{name}.weight")

    def layer(self, number: int, tag: str) -> dict[str, Any]:
        """The weights of a layer for `bench.llama_float`, with the linears rounded to a format."""
        out: dict[str, Any] = {}
        for name, spec in layer_specs(self.config).items():
            values = self.tensor(spec.source.format(layer=number))
            if name not in LINEARS:
                out[name] = values
                continue
            codec, shape = format_named(tag), held_shape(tag, spec.shape)
            padding = [(0, held - size) for held, size in zip(shape, spec.shape, strict=True)]
            packed = codec.load(codec.encode(np.pad(values.astype(np.float32), padding)), shape)
            out[name] = operand(packed, shape, format_named(codec.loads_as))
        return out

    def hidden(self, tag: str) -> np.ndarray:
        """The final hidden states bf16 [W, T, D] with the linears in a format."""
        held = [format_named(tag).loads_as] * len(LINEARS)
        embed, norm = self.tensor("model.embed_tokens"), self.tensor("model.norm")
        texts = self.windows.tolist()
        return hidden_states(self.config, held, lambda number: self.layer(number, tag), embed, norm, texts)

    def nbytes(self, tag: str) -> tuple[int, float]:
        """(resident bytes of the whole model, bits per weight of its linears), padding included."""
        held = format_named(format_named(tag).loads_as)
        packed = weights = 0
        for spec in self.specs().values():
            arrays = held.arrays(held_shape(tag, spec.shape)).values()
            packed += sum(a.nbytes for a in arrays if a.resident) * spec.layers
            weights += int(np.prod(spec.shape)) * spec.layers
        return self.checkpoint.nbytes - 2 * weights + packed, 8 * packed / weights


def row_of(tag: str, subject: Subject, base: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """The record's row of a format, from the final hidden states in BF16 and in the format."""
    embed = np.asarray(subject.tensor("model.embed_tokens"))
    columns = [compared(embed, a[:-1], b[:-1], ids[1:]) for a, b, ids in zip(base, other, subject.windows, strict=True)]
    surprise, divergence, same = (np.concatenate(column) for column in zip(*columns, strict=True))
    nbytes, bits = subject.nbytes(tag)
    shapes = {spec.shape: held_shape(tag, spec.shape) for spec in subject.specs().values()}
    padded = [f"{list(a)} as {list(b)}" for a, b in shapes.items() if a != b]
    notes = [NOTES[tag]] if tag in NOTES else []
    return {
        "name": tag,
        "weight_bits": bits,
        "bytes": nbytes,
        "perplexity": float(np.exp(surprise.mean())),
        "divergence_nats": max(0.0, float(divergence.mean())),
        "same_choice_percent": 100 * float(same.mean()),
        "note": "; ".join(notes + ([f"padded: {', '.join(padded)}"] if padded else [])),
    }


def rows_of(subject: Subject, states: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The rows of all formats with states, BF16 among them, by bits per weight."""
    rows = [row_of(tag, subject, states[BASE], other) for tag, other in states.items()]
    return sorted(rows, key=lambda row: (-row["weight_bits"], row["name"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality_formats", description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="directory of a BF16 snapshot of a Llama with a tied head")
    parser.add_argument("--name", help="how the record calls the model")
    parser.add_argument("--formats", nargs="+", default=MEASURED, metavar="TAG")
    parser.add_argument("--work", type=Path, required=True, help="keeps final hidden states, to continue a run")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/quality_formats.json")
    options = parser.parse_args(arguments)
    subject = Subject.open(options.model)
    options.work.mkdir(parents=True, exist_ok=True)
    states = {}
    for tag in dict.fromkeys([BASE, *options.formats]):
        path = options.work / f"{tag}.npy"
        if not path.is_file():
            started = time.perf_counter()
            np.save(path, subject.hidden(tag).view(np.uint16))
            print(f"{tag}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        states[tag] = np.load(path).view(BFLOAT16)
    rows = rows_of(subject, states)
    for row in rows:
        print(
            f"{row['name']:24} {row['weight_bits']:6.3f} bits {row['bytes'] / 1e6:7.1f} MB  perplexity "
            f"{row['perplexity']:8.3f}  KL {row['divergence_nats']:.5f}  {row['same_choice_percent']:5.1f} %"
        )
    if options.record:
        extra = {
            "model": options.name or str(options.model),
            "text": f"{TEXT.name}, {subject.windows.size} tokens in {len(subject.windows)} windows",
            "model_digest": model_digest(digest_files(model_files(options.model))),
            "weights": "linears rounded to nearest; embedding, head and norms in BF16",
        }
        print(write_record("quality_formats", rows, extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
