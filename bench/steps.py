"""The Triton launches of a whole served step, traced from shapes alone: nothing is computed, no GPU is needed.

    python -m bench.steps [27b-fp8 27b-nvfp4] [--rows 16,2048] [--architecture sm_90] [--compile] [--record]

A loop over layers is traced once, so counts are those of one pass through every loop. `--compile` also prints what the
assembler makes of every distinct launch, and `--record` keeps, for each kernel and number of rows, the most registers,
shared memory and spilled bytes of all `forms` that the models together launch it in.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.compiled import Compiled, Launch, compiled, launched
from bench.published import RELEASES, as_released
from dgpp.checkpoint.spec import TensorSpec, flatten, nested
from dgpp.engine.batch import build, unpacked
from dgpp.engine.settings import CoreSettings
from dgpp.formats import Weight
from dgpp.kernels import select
from dgpp.layers.taps import Taps
from dgpp.models import family_of
from dgpp.models.state import Room
from dgpp.ops.records import write_record
from dgpp.world import Single

SLOTS, PAGES, PAGE = 16, 256, 64
Form = tuple[Any, ...]


def _shapes(spec: TensorSpec) -> Weight:
    """A weight whose arrays are shapes."""
    lead = (spec.layers,) if spec.layers else ()
    arrays: dict[str, Any] = {
        field: jax.ShapeDtypeStruct((*lead, *packed.shape), packed.dtype)
        for field, packed in spec.held.arrays(spec.shape).items()
        if packed.resident
    }
    return Weight(arrays, spec.held.name, spec.shape, spec.numbers)


def step_launches(name: str, rows: int, architecture: str) -> list[Launch]:
    """The launches of a step of `rows` rows of one of RELEASES."""
    release, raw = RELEASES[name]
    family = family_of(raw)
    config = family.config(raw)
    tree = as_released(family.abstract(config), release)
    weights = nested((path, _shapes(spec)) for path, spec in flatten(tree))
    room = Room(PAGES, PAGE, SLOTS, CoreSettings.verify_rows)
    state = {
        key: jax.ShapeDtypeStruct(spec.allocation(room), spec.dtype) for key, spec in family.state(config, 1).items()
    }
    made = family.constants(config, 1024, 1)
    constants = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in made.replicated.items()}
    constants |= {key: jax.ShapeDtypeStruct(value.shape[1:], value.dtype) for key, value in made.ranked.items()}
    integers, shapes = build((), np.zeros((SLOTS, PAGES // SLOTS), np.int32), rows, SLOTS).packed()
    kernels = select("triton")

    def step(weights: Any, constants: Any, state: Any, integers: Any) -> Any:
        batch, sample_rows, sample_used = unpacked(integers, None, jnp.zeros(SLOTS, jnp.int32), shapes)
        hidden, state = family.forward(config, weights, constants, batch, state, Single(), kernels, Taps(frozenset()))
        return family.logits(config, weights, hidden[sample_rows], sample_used, Single(), kernels), state

    given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), integers)
    return launched(step, weights, constants, state, given, architecture=architecture)


def form(one: Launch) -> Form:
    """What two launches of the same compiled kernel have in common; its name is the first."""
    constants = tuple(sorted((name, str(value)) for name, value in one.constants.items()))
    return one.kernel.__name__, one.types, constants, one.warps, one.stages


def distinct(launches: Sequence[Launch]) -> list[Launch]:
    """Launches of one compiled kernel each."""
    found: dict[Form, Launch] = {}
    for one in launches:
        found.setdefault(form(one), one)
    return list(found.values())


def record_rows(rows: int, seen: Iterable[tuple[Form, str, Compiled]]) -> list[dict[str, Any]]:
    """Rows of the record from (form of a kernel, model, what became of it)."""
    found: dict[str, list[tuple[Form, str, Compiled]]] = {}
    for one in seen:
        found.setdefault(one[0][0], []).append(one)
    return [
        {
            "name": f"{kernel}, {rows} rows",
            "rows": rows,
            "models": " ".join(dict.fromkeys(model for _, model, _ in launched)),
            "forms_count": len({form for form, _, _ in launched}),
            "registers_count": max(made.registers for _, _, made in launched),
            "shared_bytes": max(made.shared for _, _, made in launched),
            "spill_bytes": max(made.stack for _, _, made in launched),
        }
        for kernel, launched in sorted(found.items())
    ]


def counted(launches: Sequence[Launch]) -> dict[str, int]:
    """How often each kernel is launched, by name."""
    return dict(collections.Counter(one.kernel.__name__ for one in launches))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="*", default=list(RELEASES), help=", ".join(RELEASES))
    parser.add_argument("--rows", default="16,2048")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--compile", action="store_true", help="compile every distinct launch")
    parser.add_argument("--record", action="store_true", help="write bench/records/<architecture>/steps.json")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.models if name not in RELEASES]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(RELEASES)}")
    made: dict[Form, Compiled] = {}
    record: list[dict[str, Any]] = []
    for rows in map(int, options.rows.split(",")):
        seen: list[tuple[Form, str, Compiled]] = []
        for name in options.models:
            found = step_launches(name, rows, options.architecture)
            print(f"{name}, {rows} rows: {len(found)} launches, {counted(found)}", flush=True)
            for one in distinct(found) if options.compile or options.record else ():
                key = form(one)
                result = made[key] = made.get(key) or compiled(one, options.architecture)
                seen.append((key, name, result))
                print(f"  {key[0]}: {result.registers} registers, {result.stack} spilled, {result.shared} shared")
        record += record_rows(rows, seen)
    if options.record:
        extra = {"triton": importlib.metadata.version("triton")}
        print(write_record("steps", record, device=options.architecture, extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
