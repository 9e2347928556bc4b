"""Goldens of the compiled whole step: every activation of every layer, the logits, and a greedy text.

Single ops can agree while the fused program differs, so the step is hashed layer by layer as it is served.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.fixture import write_fixture
from dgpp.lab.compare import in_order
from dgpp.lab.goldens.case import Computed, Judgement, digest, shown
from dgpp.lab.model import Model, load
from dgpp.models import FAMILIES

PORTABLE = ("embed",)
"""Activations that come from no arithmetic at all."""

ROUNDINGS = {"llama": 12, "qwen35": 40, "qwen_flash_next": 60}
"""Roundings to bfloat16 that a value meets in one layer. Llama: two norms, q or k, v, the attention weight, the mix,
two leaves, two folds, the activation, two residual sums (one of them may be exact). The Qwen hybrids: twice as many in
a mixer (convolution, three in the gated norm, the gate), as many again where errors of a recurrent state add up over
tokens; and three for each of a gated residual's two mixes and feeds."""

ORACLES = {"llama": "llama", "qwen35": "qwen", "qwen_flash_next": "qwen"}
"""The modules of tests/oracles that judge a family."""

CHOICES = (".moe.experts", ".index.blocks")
"""Activations that are choices, which a rounding can tip: the judge takes those of the run, and judges the rest."""


@dataclass(frozen=True)
class StepCase:
    """A model and two prompts: `prompt` is captured, `continued` is continued greedily for `generated` tokens."""

    name: str
    directory: Callable[[Path], Path]  # the model's directory, which may be written into the one that is given
    prompt: str
    continued: str
    page_tokens: int
    generated: int = 24
    release: str | None = None  # of a fixture
    real: bool = False  # needs weights from outside the repository
    folder: str = "step"

    @property
    def inputs(self) -> dict[str, Any]:
        """The model by name, the prompts and the layout."""
        return {
            "model": f"fixture {self.release}, seed 0" if self.release else self.name,
            "prompt": self.prompt,
            "continued": self.continued,
            "generated": self.generated,
            "page_tokens": self.page_tokens,
        }

    def compute(self, kernels: str | None) -> Computed:
        """Digests by activation, in the order of the forward."""
        with tempfile.TemporaryDirectory() as scratch:
            directory = self.directory(Path(scratch) / "model")
            return self._compute(directory, kernels)

    def _compute(self, directory: Path, kernels: str | None) -> Computed:
        m = load(
            str(directory),
            slots=1,
            pool_tokens=256,
            page_tokens=self.page_tokens,
            row_families=(128,),
            kernels=kernels,
        )
        forward = m.forward(self.prompt, capture="*")
        text = m.generate(self.continued, self.generated)
        digests = {name: digest(forward.activations[name]) for name in in_order(forward.activations)}
        digests["logits"] = digest(forward.logits)
        files = ("config.json", *m.checkpoint.shards)
        portable = {name: digest((directory / name).read_bytes()) for name in files}
        portable["prompt"] = digest(np.array(forward.ids, np.int32))
        portable |= {name: digests.pop(name) for name in PORTABLE}
        pinned = {
            **digests,
            "first logits": shown(forward.logits[0, :4]),
            "last logits": shown(forward.logits[-1, :4]),
            "greedy ids": " ".join(map(str, text.ids)),
            "greedy text": text.text,
        }
        chosen = {name: array for name, array in forward.activations.items() if name.endswith(CHOICES)}
        exact, roundings = _exact_logits(m, forward.ids, chosen), ROUNDINGS[m.family.name] * m.config.layers
        return Computed(lambda: judge_logits(forward.logits, exact(), roundings), portable, pinned)


def judge_logits(logits: np.ndarray, exact: np.ndarray, roundings: int) -> Judgement:
    """The relative error of `logits` [T, V] against float64.

    The bound lets every one of the `roundings` on a value's way move the result by 2^-8 of its size (the largest that
    one rounding to bfloat16 can make of a normal value), independently of each other.
    """
    error = float(np.linalg.norm(logits - exact) / np.linalg.norm(exact))
    return Judgement(error, float(np.sqrt(roundings)) * 2.0**-8)


def _exact_logits(m: Model, ids: tuple[int, ...], chosen: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
    """The logits by the family's float64 oracle, which lives with the tests of a source checkout. The files are mapped
    now, because they may be gone when somebody asks."""
    tensors = {name: m.checkpoint.read(name) for name in m.checkpoint.tensors}

    def exact() -> np.ndarray:
        oracle = importlib.import_module(f"tests.oracles.{ORACLES[m.family.name]}")
        read = tensors.__getitem__
        if m.family.name != "llama":
            read = importlib.import_module("tests.oracles.reading").held(tensors)
        more = {"chosen": chosen} if chosen else {}
        logits: np.ndarray = oracle.logits(m.checkpoint.config, read, ids, **more)
        return logits

    return exact


def fixture(family: str, release: str, directory: Path) -> Path:
    """The fixture of a release, written to `directory`."""
    return write_fixture(FAMILIES[family], release, directory)


def embedded(directory: Path) -> Path:
    """The model inside the package."""
    return embedded_path()


def smollm2(directory: Path) -> Path:
    """SmolLM2 as the tests of a source checkout fetch it."""
    path: Path = importlib.import_module("tests.real.smollm2").snapshot()
    return path


PROSE = (
    "When in the course of human events it becomes necessary to look at every number that a machine has computed, "
    "it is of some comfort that the machine computes the same numbers again."
)
STEP_CASES = (
    *(
        StepCase(
            f"{family}-{release}", partial(fixture, family, release), PROSE, "Once upon a time", 16, release=release
        )
        for family, release in (
            ("llama", "tiny"),
            ("llama", "tiny-tied"),
            ("llama", "tiny-9x3"),
            ("llama", "tiny-llama3-rope"),
            ("qwen35", "tiny-dense"),
            ("qwen35", "tiny-moe"),
            ("qwen_flash_next", "tiny"),
        )
    ),
    StepCase("embedded", embedded, PROSE, "Once upon a time", 64),
    StepCase("smollm2", smollm2, PROSE, "The capital of France is", 16, real=True),
)
