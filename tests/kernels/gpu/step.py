"""A decode step of a tiny model on a CUDA device: the kernels that run, and the graphs in which the host launches them.

python -m tests.kernels.gpu.step kernels
python -m tests.kernels.gpu.step graphs
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.compiled import launched
from bench.device import events, graph_launches, one_by_one
from bench.device import launches as ran
from bench.steps import counted
from dgpp.engine.batch import Segment
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.rows import Phase
from dgpp.lab.model import Model, load
from tests.models.qwen import directory_of

ROWS = 16
STEP_KERNELS = 400
"""More than a step of a tiny model may launch, XLA's own among them."""
GRAPHS = 12
"""More graphs of launches than a step may be: before, in and behind each loop over layers, and the picks."""


def model() -> Model:
    """A tiny dense model."""
    path = str(directory_of("qwen35", "tiny-dense"))
    return load(path, kernels="triton", slots=4, pool_tokens=1024, page_tokens=64, row_families=(ROWS,))


def a_step(held: Model) -> Callable[[], Any]:
    """What decodes a token in slot 0."""
    held.core.pool.reserve(0, 64)
    return lambda: held.core.step([Segment(0, 0, (1,), Phase.DECODE, (0,))]).picks


def kernels() -> str:
    """One compiled program without a way to the host, whose kernels are those that were traced."""
    traced, held = model(), model()  # one to trace with its kernels replaced, and one to run
    wanted = counted(launched(lambda: (traced.core.lowered(ROWS), 0)[1], architecture=architecture()))
    assert wanted
    text = held.core.lowered(ROWS).as_text()
    for way in ("callback", "infeed", "outfeed"):
        assert way not in text, way
    found = ran(events(a_step(held)))
    assert {name for name in wanted if found.get(name, 0) < wanted[name]} == set(), found
    assert sum(found.values()) < STEP_KERNELS, found
    return f"{sum(found.values())} kernels and copies in a step: {found}"


def graphs() -> str:
    """XLA launches the step in a few graphs."""
    found = graph_launches(a_step(model()))
    assert 0 < found < GRAPHS, found
    return f"{found} graphs of launches in a step"


if __name__ == "__main__":
    if sys.argv[1] == "kernels":
        one_by_one()
    print({"kernels": kernels, "graphs": graphs}[sys.argv[1]]())
