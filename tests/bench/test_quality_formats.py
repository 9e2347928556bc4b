"""The quality benchmark on the embedded model, and what the committed record has to show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dgpp
from bench import quality_formats
from bench.llama_float import compared, operand, product
from bench.quality_formats import BASE, MEASURED, Subject, held_shape, rows_of
from dgpp.checkpoint.embedded import embedded_path
from dgpp.formats import FORMATS, format_named, reference
from dgpp.formats.bf16 import BFLOAT16
from dgpp.ops.records import check_rows
from tests.formats.cases import CASES, Case, random_weight

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "bench" / "records").glob("*/quality_formats.json"))


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.open(embedded_path(), windows=1, window=24)


KINDS = (
    "bf16",
    "fp8_block128",
    "fp8_tensor",
    "nvfp4",
    "mxfp8",
    "int4_g64",
    "gptq_int4_g128_asym_v1",
    "nf4i8",
    "mixed346_3",
)


@pytest.mark.parametrize("case", [case for case in CASES if case.tag in KINDS], ids=lambda case: case.tag)
def test_the_product_is_the_formats_own_up_to_the_order_of_sums(case: Case) -> None:
    n, k = case.awkward
    codec = case.format
    arrays = codec.load(random_weight(case, (n, k)), (n, k))
    held = format_named(codec.loads_as)
    x = np.random.default_rng(1).standard_normal((3, k)).astype(BFLOAT16)
    ours = np.asarray(product(x, operand(arrays, (n, k), held), held, n))
    exact = reference.linear(x, arrays, (n, k), held)
    assert np.abs(ours - exact).max() <= 1e-5 * np.abs(exact).max()


def test_in_bf16_it_is_the_serving_forward_but_for_roundings(subject: Subject) -> None:
    model = dgpp.load()
    ids = tuple(subject.windows[0].tolist())
    hidden = subject.hidden(BASE)[0]
    run = model.forward(ids, capture="final_norm")
    served = run.activations["final_norm"].astype(np.float32)
    assert np.abs(hidden.astype(np.float32) - served).max() < 0.02 * np.abs(served).max()
    embed = np.asarray(subject.tensor("model.embed_tokens"))
    surprise, divergence, same = compared(embed, hidden[:-1], hidden[:-1], np.array(ids[1:]))
    logits = run.logits[:-1].astype(np.float64)
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(ids) - 1), ids[1:]]
    assert surprise == pytest.approx(expected, abs=0.05)
    assert np.abs(divergence).max() < 1e-6
    assert same.all()


def test_rows_of_a_few_formats(subject: Subject) -> None:
    states = {tag: subject.hidden(tag) for tag in (BASE, "int8_g64", "nvfp4")}
    states["nf4i8"] = states["nvfp4"]
    rows = rows_of(subject, states)
    check_rows("quality_formats", rows)
    found = {row["name"]: row for row in rows}
    assert [row["name"] for row in rows] == sorted(found, key=lambda tag: -found[tag]["weight_bits"])
    assert found[BASE]["divergence_nats"] < 1e-6
    assert found[BASE]["bytes"] == subject.checkpoint.nbytes
    assert 0 < found["int8_g64"]["divergence_nats"] < found["nvfp4"]["divergence_nats"]
    assert found["nvfp4"]["note"] == ""
    assert "padded: " in found["nf4i8"]["note"]


def test_matrices_are_padded_only_where_they_must_be() -> None:
    assert held_shape("nvfp4", (192, 576)) == (192, 576)
    assert held_shape("nf4i8", (192, 576)) == (192, 640)
    assert held_shape("exl3_3_mul1", (192, 576)) == (256, 640)
    with pytest.raises(ValueError, match="bf12: K = 640"):
        held_shape("bf12", (192, 576))


def test_measured_are_known_formats_with_a_linear() -> None:
    assert len(set(MEASURED)) == len(MEASURED)
    assert set(MEASURED) <= FORMATS.keys()
    assert all(format_named(tag).exact_in for tag in MEASURED)


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alice\.txt has \d+ tokens"):
        Subject.open(embedded_path(), windows=1000, window=1000)


def test_a_run_keeps_what_it_computed(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def hidden(self: Subject, tag: str) -> np.ndarray:
        computed.append(tag)
        return np.ones((*self.windows.shape, self.config.hidden_size), BFLOAT16)

    monkeypatch.setattr(Subject, "open", staticmethod(lambda directory: subject))
    monkeypatch.setattr(Subject, "hidden", hidden)
    arguments = [str(embedded_path()), "--formats", "mxfp8", "--work", str(tmp_path)]
    assert quality_formats.main(arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bf16.npy", "mxfp8.npy"]
    assert quality_formats.main(arguments) == 0
    assert computed == [BASE, "mxfp8"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_more_bits_never_look_worse_without_an_explanation(path: Path) -> None:
    rows = json.loads(path.read_text())["rows"]
    check_rows("quality_formats", rows)
    assert {row["name"] for row in rows} >= {BASE, "fp8_block128", "nvfp4", "mxfp4", "int4_g64", "int8_g64"}
    for row in rows:
        better = [
            other
            for other in rows
            if other["weight_bits"] < row["weight_bits"] * 0.99 and other["divergence_nats"] < row["divergence_nats"]
        ]
        assert not better or row["note"], f"{row['name']} is worse than {better[0]['name']}, which has fewer bits"
