"""Whole models at full size on an accelerator: random weights made on the device, decode at several streams, prefill.

    python -m bench.decode 27b-fp8 27b-nvfp4 [--streams 1,4,8,16] [--prefill 2048] [--kernels triton] [--partner]
        [--record]

The step is the one that is served (`Core.step`), with its host side: building a batch, reading picks. A step's
bytes are the weights that it must read once, and the state: K/V of the context, and what recurrent layers read and
write. `fraction` is of the read bandwidth of the same run. Values are random and of the size that trained ones have.
Of a prompt `matmul_ratio` is the rate of the products of its tokens with the layers' matrices, over that of a large
bfloat16 product in the same run, and `recurrence_ratio` the share of the delta rule in the device's time.
`--partner` runs the same config through transformers first, in bfloat16.
"""

from __future__ import annotations

import argparse
import collections
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.attention import matmul_rate
from bench.device import Event, events, read_bandwidth, table
from bench.partners import PartnerError
from bench.published import RELEASES, as_released
from bench.random_weights import random_experts, random_weight
from bench.transformers_gpu import beside
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten, nested
from dgpp.checkpoint.traffic import EXPERTS, NGRAMS, VOCABULARY, experts_per_token, lookups_per_token, weight_traffic
from dgpp.engine.batch import Segment, picked
from dgpp.engine.core import Core
from dgpp.engine.settings import CoreSettings
from dgpp.formats import Weight
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.models import family_of
from dgpp.models.state import SlotSpec
from dgpp.ops.records import write_record

MODELS = ("27b-fp8", "27b-nvfp4", "122b-nvfp4")  # of RELEASES: those that one device holds
CONTEXT = 256  # tokens of every stream before decoding
STEPS = 48  # timed decode steps
WARM = 8  # steps before the clock runs
CACHE = 1024  # tokens of the pool for each stream
PARTNER_SECONDS = 120.0
XLA = re.compile("loop_|input_|wrapped_|fusion|mem|Mem")
"""Names of kernels that are not ours."""


@dataclass(frozen=True)
class Model:
    """A model that is ready to be measured."""

    name: str
    core: Core
    tree: SpecTree
    raw: Mapping[str, Any]

    def weight_bytes(self, rows: int) -> float:
        """Bytes of the weights that a step of `rows` rows reads, whose choice of experts is even."""
        tied = self.core.family.tied(self.core.config)
        counts = experts_per_token(self.raw), lookups_per_token(self.raw)
        return weight_traffic(self.tree, tied, 1, rows, *counts).nbytes

    def multiplied(self) -> int:
        """The weights that a token of a prompt is multiplied with: of the matrices of all layers and of its experts."""
        total = 0.0
        for _, spec in flatten(self.tree):
            if len(spec.shape) >= 2 and spec.axes[0] not in (VOCABULARY, NGRAMS) and spec.shape[-1] >= 16:
                share = (experts_per_token(self.raw) or 0) / spec.shape[0] if spec.axes[0] == EXPERTS else 1
                total += share * max(1, spec.layers) * math.prod(spec.shape)
        return round(total)


def weights_of(tree: SpecTree) -> dict[str, Any]:
    """Random weights for a tree, made on the device; matrices [N, K] or [E, N, K] have values of about 1 / sqrt(K)."""
    return nested((path, _weight(spec, number)) for number, (path, spec) in enumerate(flatten(tree)))


def _weight(spec: TensorSpec, seed: int) -> Weight:
    shape = spec.shape
    if len(shape) < 2 or shape[-1] < 16:
        lead = (spec.layers,) if spec.layers else ()
        noise = jax.random.normal(jax.random.key(seed), (*lead, *shape), jnp.float32) / 8
        values = (spec.centre + noise if len(shape) == 1 else 4 * noise).astype(jnp.bfloat16)
        return Weight({"values": values}, spec.held.name, shape, spec.numbers)
    stacks: dict[str, jax.Array] = {}
    for layer in range(max(1, spec.layers)):  # one at a time: random bits take several times their own memory
        one = (random_weight if len(shape) == 2 else random_experts)(spec.held.name, 1, *shape, 1000 * seed + layer)
        for name, array in one.arrays.items():
            empty = jnp.empty((max(1, spec.layers), *array.shape[1:]), array.dtype) if layer == 0 else stacks[name]
            stacks[name] = _put(empty, array, layer)
    arrays = {name: array if spec.layers else array[0] for name, array in stacks.items()}
    small = random_weight(spec.held.name, 1, min(shape[-2], 256), min(shape[-1], 512))
    sample = spec.held.decode({name: np.asarray(array[0]) for name, array in small.arrays.items()}, small.shape)
    factor = float(1 / (np.sqrt(np.mean(sample.astype(np.float64) ** 2)) * np.sqrt(shape[-1])))
    for name in ("global_scale", "values", "scale"):  # the first of them that is a number carries the size
        if name in arrays and jnp.issubdtype(arrays[name].dtype, jnp.floating):
            divides = name == "global_scale" and spec.held.name == "nvfp4_divisor"
            arrays[name] = _scaled(arrays[name], 1 / factor if divides else factor)
            break
    return Weight(arrays, spec.held.name, shape, spec.numbers)


@partial(jax.jit, donate_argnums=0)
def _put(stack: jax.Array, one: jax.Array, layer: Any) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(stack, one, layer, 0)


@jax.jit
def _scaled(x: jax.Array, factor: Any) -> jax.Array:
    return (x.astype(jnp.float32) * factor).astype(x.dtype)


def state_bytes(core: Core, streams: int, context: int) -> int:
    """Bytes of state that a decode step of `streams` streams moves: K/V read, and recurrent values read and written."""
    specs = core.state_specs.values()
    cache = sum(spec.bytes_per_token for spec in specs) * context
    recurrent = sum(2 * spec.bytes_per_slot(0) for spec in specs if isinstance(spec, SlotSpec))
    return streams * (cache + recurrent)


def decode_row(model: Model, streams: int, read: float) -> dict[str, Any]:
    """One row: the median of timed steps, after every stream has its context. As in the engine, a step begins before
    the picks of the one before it are read."""
    rng, core = np.random.default_rng(0), model.core
    vocabulary = core.config.vocab_size
    last: list[int] = []
    for slot in range(streams):
        core.pool.reserve(slot, CACHE)
        prompt = tuple(int(token) for token in rng.integers(0, vocabulary, CONTEXT))
        result = core.step([Segment(slot, 0, prompt, Phase.PREFILL, (CONTEXT - 1,))])
        last.append(int(result.picks[0]))

    def rows(at: int, tokens: Sequence[int]) -> list[Segment]:
        return [Segment(slot, at, (token,), Phase.DECODE, (0,)) for slot, token in enumerate(tokens)]

    begun = core.step(rows(CONTEXT, [max(0, token) for token in last]))
    done = [time.perf_counter()]
    for at in range(CONTEXT + 1, CONTEXT + WARM + STEPS + 1):
        before, begun = begun, core.step(rows(at, [picked(slot) for slot in range(streams)]))
        last = before.picks.tolist()
        done.append(time.perf_counter())
    seconds = np.diff(done).tolist()
    for slot in range(streams):
        core.pool.release(slot)
    median = statistics.median(seconds[WARM:])
    nbytes = model.weight_bytes(streams) + state_bytes(core, streams, CONTEXT + WARM + STEPS // 2)
    row = finished(model.name, "decode", streams, median, nbytes, read)
    return row | {"finite": "yes" if min(last) >= 0 else "no"}


def finished(
    name: str, kind: str, size: int, seconds: float, nbytes: float, read: float, engine: str = ""
) -> dict[str, Any]:
    """A row of the record: a decode step of `size` streams, or a prompt ("prefill") of `size` tokens."""
    what = f"{size} tokens" if kind == "prefill" else f"{size} {'stream' if size == 1 else 'streams'}"
    row = {"name": f"{name}, {kind}, {what}{engine}", "seconds": seconds, "bytes": nbytes}
    row |= {"gbps": nbytes / seconds / 1e9, "fraction": nbytes / seconds / 1e9 / read}
    if kind == "decode":
        row |= {"streams": size, "ms_per_step": 1e3 * seconds}
    return row | {"tokens_per_second": size / seconds}


def profile(core: Core, streams: int) -> list[Event]:
    """What one decode step of `streams` streams at their first position runs."""
    for slot in range(streams):
        core.pool.reserve(slot, CACHE)
    segments = [Segment(slot, 0, (1,), Phase.PREFILL, (0,)) for slot in range(streams)]
    found = events(lambda: core.step(segments).picks)
    for slot in range(streams):
        core.pool.release(slot)
    return found


def profile_rows(name: str, seen: Sequence[Event], weight_bytes: float, nbytes: float, read: float) -> list[Any]:
    """Rows of the record of a profile: each kernel's device time in a step, XLA's own taken together, and all of it.
    Products, where they alone read weights, and the whole have the bytes of weights, or of weights and state."""
    seconds: collections.Counter[str] = collections.Counter()
    count: collections.Counter[str] = collections.Counter()
    for event in seen:
        kernel = "XLA's own kernels and copies" if XLA.match(event.name) else event.name
        for key in (kernel, "all"):
            seconds[key] += event.seconds  # type: ignore[assignment]
            count[key] += 1
    moving = {"all": nbytes} if "grouped" in seconds else {"product": weight_bytes, "all": nbytes}
    rows = []
    for kernel in (*(key for key, _ in seconds.most_common() if key != "all"), "all"):
        row = {"name": f"{name}, {kernel}", "model": name, "seconds": seconds[kernel], "launches_count": count[kernel]}
        if moved := moving.get(kernel):
            gbps = moved / seconds[kernel] / 1e9
            row |= {"bytes": moved, "gbps": gbps, "fraction": gbps / read}
        rows.append(row)
    return rows


def prefill_row(model: Model, tokens: int, read: float, rate: float) -> dict[str, Any]:
    """One row: a prompt of `tokens` tokens in one step; `rate` operations a second of a large product, 0 if
    unknown."""
    core = model.core
    core.pool.reserve(0, tokens)
    prompt = tuple(int(token) for token in np.random.default_rng(1).integers(0, core.config.vocab_size, tokens))
    seconds = []
    segments = [Segment(0, 0, prompt, Phase.PREFILL, (tokens - 1,))]
    for _ in range(4):
        started = time.perf_counter()
        core.step(segments).picks.tolist()
        seconds.append(time.perf_counter() - started)
    row = finished(model.name, "prefill", tokens, statistics.median(seconds[1:]), model.weight_bytes(tokens), read)
    if rate:
        row |= {"matmul_ratio": 2 * model.multiplied() * tokens / row["seconds"] / rate}
    seen = events(lambda: core.step(segments).picks)
    core.pool.release(0)
    if recurrence := sum(event.seconds for event in seen if event.name == "segments"):
        row |= {"recurrence_ratio": recurrence / sum(event.seconds for event in seen)}
    return row


def ready(name: str, options: argparse.Namespace) -> Model:
    """A model with its kernels compiled."""
    release, raw = RELEASES[name]
    raw = {**raw, "text_config": {**raw["text_config"], **options.change}}
    family = family_of(raw)
    config = family.config(raw)
    tree = as_released(family.abstract(config), release)
    started = time.perf_counter()
    weights = jax.block_until_ready(weights_of(tree))
    print(f"{name}: weights in {time.perf_counter() - started:.1f} s", flush=True)
    families = tuple(sorted({*CoreSettings.row_families, CONTEXT, *options.prefill}))
    pool = max(CACHE * max(options.streams), *options.prefill, 1024)
    settings = CoreSettings(max(options.streams), pool, row_families=families)
    started = time.perf_counter()
    core = Core(family, config, weights, settings, select(options.kernels), tree)
    with ThreadPoolExecutor(len(families)) as threads:
        for rows, failure in zip(families, threads.map(partial(_compiled, core), families), strict=True):
            if failure:
                print(f"{name}, {rows} rows: {failure}", flush=True)
    print(f"{name}: ready in {time.perf_counter() - started:.1f} s", flush=True)
    return Model(name, core, tree, raw)


def _compiled(core: Core, rows: int) -> str:
    """Compiles the kernels of a row family; what went wrong."""
    try:
        core.lowered(rows)
    except Exception as error:  # the other families can be measured all the same
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def measured(
    model: Model, options: argparse.Namespace, read: float, rate: float
) -> Iterator[Callable[[], dict[str, Any]]]:
    """What measures the rows of a model, one by one."""
    for streams in options.streams:
        yield partial(decode_row, model, streams, read)
    for tokens in options.prefill:
        yield partial(prefill_row, model, tokens, read, rate)


def beside_models(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What `bench.transformers_gpu` finds for each config, by name; before JAX has the memory."""
    found: dict[str, dict[str, Any]] = {}
    for name, raw in {name.split("-")[0]: RELEASES[name][1] for name in options.models}.items():
        config = {**raw["text_config"], **options.change}
        try:
            found[name] = beside(config, CONTEXT, options.streams, options.prefill, PARTNER_SECONDS)
        except PartnerError as error:
            print(error, flush=True)
    return found


def partner_rows(name: str, found: dict[str, Any], read: float) -> list[dict[str, Any]]:
    """Rows for the record of what `bench.transformers_gpu` found."""
    engine = f": {found['engine']}"
    return [
        finished(name, timing["kind"], timing["size"], timing["seconds"], found["bytes"], read, engine)
        for timing in found["timings"]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(prog="python -m bench.decode", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--streams", type=numbers, default=[1, 4, 8, 16])
    parser.add_argument("--prefill", type=numbers, default=[2048])
    parser.add_argument("--profile", type=numbers, default=[], help="the kernels of a step of so many streams, too")
    parser.add_argument("--kernels", default="triton")
    parser.add_argument("--partner", action="store_true", help="transformers with the same config, too")
    parser.add_argument("--layers", type=int, help="only so many layers, to try the script")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/decode.json")
    parser.add_argument("--device", help="how the record calls the accelerator")
    parser.add_argument("--records", type=Path, help="the folder of records, instead of bench/records")
    options = parser.parse_args(arguments)
    options.change = {} if options.layers is None else {"num_hidden_layers": options.layers, "vocab_size": 4096}
    partners = beside_models(options) if options.partner else {}
    first_read = read_bandwidth()
    extra = {
        "kernels": options.kernels,
        "context": CONTEXT,
        "row families": str(CoreSettings.row_families),
        "weights": "random, made on the device",
    }
    failed = False
    with ThreadPoolExecutor(len(options.models)) as threads:
        made = [threads.submit(ready, name, options) for name in options.models]
        models = [one.result() for one in made]
    # A device that was idle reads more slowly for a while: the faster of two readings counts.
    memory = max(first_read, read_bandwidth(), key=lambda reading: reading["gbps"])
    print(f"memory, read: {memory['gbps']:.0f} GB/s", flush=True)
    rate = matmul_rate() if options.prefill and jax.default_backend() == "gpu" else 0.0
    rows: list[dict[str, Any]] = [{**memory, "fraction": 1.0}]
    profiled = rows[:1]

    written: dict[str, Path] = {}

    def record(name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Writes what there is so far: a run that is cut short has it."""
        if options.record:
            written[name] = write_record(name, rows, device=options.device, extra=extra, root=options.records)

    for name, found in partners.items():
        beside_ours = partner_rows(name, found, memory["gbps"])
        print(*beside_ours, sep="\n", flush=True)
        rows += beside_ours
    for model in models:
        for streams in options.profile:
            seen, nbytes = profile(model.core, streams), model.weight_bytes(streams)
            all_bytes = nbytes + state_bytes(model.core, streams, 1)
            what = model.name if streams == 1 else f"{model.name}, {streams} streams"
            print(f"{what}:\n{table(seen)}", flush=True)
            if any(event.name == "product" for event in seen):
                profiled += profile_rows(what, seen, nbytes, all_bytes, memory["gbps"])
                record("step_profile", profiled)
            else:  # it is not always told of the kernels of a graph
                print(f"{what}: the profile lacks the kernels of the step, and is not recorded", flush=True)
        for measure in measured(model, options, memory["gbps"], rate):
            try:
                row = measure()
            except jax.errors.JaxRuntimeError as error:  # no memory left for a long prompt, say
                print(f"{model.name}: {str(error)[:400]}", flush=True)
                failed = True
                continue
            rows.append(row)
            print(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True
            )
            record("decode", rows)
    print(*written.values(), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
