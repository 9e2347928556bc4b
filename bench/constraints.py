"""What constrained decoding costs: compiling a schema, and the mask of every token of an answer.

    python -m bench.constraints --record

Twenty schemas of the tests' corpus, each with an answer that fits, on a synthetic vocabulary: the bytes, the words of
this repository's sources with and without a blank before them, and random words in several scripts. Each repeat
compiles anew, as each request does, and walks the answer, token by token: "mask" is the median time of one mask as
booleans, "slowest" that of the slowest. Where `xgrammar` is installed, it takes turns with us in the same process, its
cache off and one thread, and its bit masks are turned into booleans in the same way; ratios are its times over
ours.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dgpp.ops.records import write_record
from dgpp.text.constraints import Plan, TokenVocabulary, compile, parse_response_format
from tests.text.constraints.corpus import ENFORCED
from tests.text.constraints.support import samples

VOCABULARIES = (151_936, 248_320)  # of Qwen3 and Qwen3.5
NAMES = (
    "user", "order", "chat message", "search", "product", "booking", "container", "pipeline", "model", "router",
    "answer", "entities", "receipt", "list of pets", "shape", "tree", "json value", "ui components", "addresses",
    "cents",
)  # fmt: skip
EOS = "<|im_end|>"


class Words:
    """A synthetic vocabulary of `size` tokens."""

    def __init__(self, size: int) -> None:
        controls = (EOS, "<think>", "</think>", "<tool_call>", "</tool_call>")
        plain: dict[bytes, None] = {}
        words = _words()
        while len(plain) < size - len(controls):
            plain[next(words)] = None
        self.entries: list[bytes] = [*plain, *(text.encode() for text in controls)]
        self.control_tokens: Mapping[str, int] = {text: len(plain) + at for at, text in enumerate(controls)}
        self.vocab_size = len(self.entries)
        self.special_ids = frozenset({self.control_tokens[EOS]})

    def token_bytes(self, id: int) -> bytes:
        """The spelling of a token."""
        return self.entries[id]


def _words() -> Iterator[bytes]:
    yield from (bytes([byte]) for byte in range(256))
    counts: Counter[str] = Counter()
    for path in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        counts.update(re.findall(r" ?[A-Za-z]+| ?\d{1,3}| ?[^\sA-Za-z0-9]+|\s+", path.read_text(encoding="utf-8")))
    yield from (word[:16].encode() for word, _ in counts.most_common())
    source = random.Random(0)
    scripts = (
        "etaoinshrdlucmfwypvbgk",
        "".join(map(chr, range(0x4E00, 0x9FA5))),
        "".join(map(chr, range(0x430, 0x450))),
    )
    while True:
        letters = source.choice(scripts)
        word = "".join(
            source.choice(letters) for _ in range(source.randint(2, 4) if len(letters) > 100 else source.randint(4, 9))
        )
        yield (source.choice(("", " ")) + word).encode()


Walk = Callable[[Sequence[int]], list[float]]
"""Seconds of the mask before each token of an answer."""


def ours(vocabulary: TokenVocabulary, schema: Any) -> Walk:
    """Compiles with this package."""
    named = {"name": "answer", "schema": schema, "strict": True}
    make = compile(Plan(parse_response_format({"type": "json_schema", "json_schema": named})), vocabulary)
    assert make is not None
    constraint = make()

    def walk(ids: Sequence[int]) -> list[float]:
        times = []
        for id in ids:
            started = time.perf_counter()
            mask = constraint.allowed()
            times.append(time.perf_counter() - started)
            assert mask is not None
            assert mask[id]
            constraint.accept(id)
        return times

    return walk


def partner(words: Words) -> Callable[[Any], Walk] | None:
    """What compiles with xgrammar; None where it is not installed."""
    if importlib.util.find_spec("xgrammar") is None:
        return None
    import xgrammar

    info = xgrammar.TokenizerInfo(
        words.entries,
        vocab_type=xgrammar.VocabType.RAW,
        vocab_size=words.vocab_size,
        stop_token_ids=[*words.special_ids],
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, words.vocab_size)

    def begin(schema: Any) -> Walk:
        matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema), strict_mode=False))

        def walk(ids: Sequence[int]) -> list[float]:
            times = []
            for id in ids:
                started = time.perf_counter()
                matcher.fill_next_token_bitmask(bits)
                packed = bits.numpy().view(np.uint8)[0]
                mask = np.unpackbits(packed, count=words.vocab_size, bitorder="little").view(bool)
                times.append(time.perf_counter() - started)
                if not mask[id] or not matcher.accept_token(id):
                    raise ValueError("xgrammar does not allow the answer")
            return times

        return walk

    return begin


def timed(begin: Callable[[], Walk], ids: Sequence[int], repeats: int) -> tuple[float, float, float]:
    """Best seconds of a compilation, median of a mask, and the best repeat's slowest mask."""
    compiles, masks = [], []
    for _ in range(repeats):
        started = time.perf_counter()
        walk = begin()
        compiles.append(time.perf_counter() - started)
        masks.append(walk(ids))
    return min(compiles), median(seconds for times in masks for seconds in times), min(map(max, masks))


def measured(size: int, repeats: int) -> Iterator[dict[str, Any]]:
    """The rows of one vocabulary."""
    words = Words(size)
    vocabulary = TokenVocabulary.of(words, size, words.special_ids)  # type: ignore[arg-type]
    started = time.perf_counter()
    _ = vocabulary.library
    yield {"name": f"vocabulary of {size}", "seconds": time.perf_counter() - started}
    begin = partner(words)
    for name in NAMES:
        schema = ENFORCED[name]
        answer = json.dumps(json.loads(samples(schema, 1)[0]), ensure_ascii=False)
        ids = vocabulary.spell(answer.encode())
        assert ids is not None
        compiled, mask, slowest = timed(partial(ours, vocabulary, schema), ids, repeats)
        row = {"name": f"{name}, {size}", "compile_seconds": compiled, "mask_seconds": mask, "slowest_seconds": slowest}
        if begin is not None:
            try:
                other, its_mask, its_slowest = timed(partial(begin, schema), ids, repeats)
            except (ValueError, RuntimeError) as error:
                row["xgrammar"] = str(error).split("\n")[0][:60]
            else:
                row["xgrammar_compile_seconds"], row["xgrammar_mask_seconds"] = other, its_mask
                row |= {
                    "compile_ratio": other / compiled,
                    "mask_ratio": its_mask / mask,
                    "slowest_ratio": its_slowest / slowest,
                }
        yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.constraints", description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, action="append", help="tokens (default: those of Qwen3 and Qwen3.5)")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/constraints.json")
    options = parser.parse_args(arguments)
    rows = []
    for size in options.vocabulary or VOCABULARIES:
        for row in measured(size, options.repeats):
            print(
                "  ".join(
                    f"{key} {value:.3g}" if isinstance(value, float) else str(value) for key, value in row.items()
                )
            )
            rows.append(row)
    if options.record:
        libraries = ("llguidance", "xgrammar")
        used = {name: importlib.metadata.version(name) for name in libraries if importlib.util.find_spec(name)}
        print(write_record("constraints", rows, extra={"repeats": options.repeats, **used}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
