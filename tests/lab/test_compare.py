from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from dgpp.lab.compare import compare, describe, difference, in_order, ulps
from dgpp.lab.model import Forward, Model


def test_ulps_count_the_steps_between_neighbours_of_any_sign() -> None:
    one = np.float32(1)
    a = np.array([1, 1, -1, 0, 0, 2**-149], np.float32)
    b = np.array([np.nextafter(one, 2), np.nextafter(one, 0), -1, -0.0, 2**-149, -(2**-149)], np.float32)
    assert ulps(a, b).tolist() == [1, 1, 0, 0, 1, 2]
    x = np.array([1, -1], ml_dtypes.bfloat16)
    y = np.array([1 + 2**-7, -1 - 2**-6], ml_dtypes.bfloat16)
    assert ulps(x, y).tolist() == [1, 2]


def test_a_difference_is_counted_in_ulps_and_judged_in_float64() -> None:
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[1, 2] = 1.5
    b[1, 0] = np.nextafter(np.float32(1), 2)
    found = difference("x", b, a)
    assert (found.different, found.first, found.values) == (2, (1, 0), (1.5, 1.0))
    assert found.ulps == 2**22
    assert found.relative == pytest.approx(0.5 / np.sqrt(6))
    assert not found.equal
    assert "2 of 6 values differ, first at [1, 0]; up to 4194304 ulps, 1.5 beside 1" in describe(found)


def test_integers_are_compared_as_they_are() -> None:
    chosen = np.array([[0, 3], [1, 7]], np.int32)
    assert difference("x", chosen, chosen.copy()).equal
    found = difference("x", np.array([[0, 3], [-2, 7]], np.int32), chosen)
    assert (found.different, found.first, found.ulps, found.values) == (1, (1, 0), 3, (-2.0, 1.0))


def test_signs_of_zero_and_nan_bits_are_seen() -> None:
    assert difference("x", np.zeros(1, np.float32), -np.zeros(1, np.float32)).different == 1
    nan = np.full(2, np.nan, np.float32)
    assert difference("x", nan, nan.copy()).equal
    assert not difference("x", nan, np.zeros(2, np.float32)).equal


def test_arrays_of_another_kind_are_not_taken_for_equal() -> None:
    found = difference("x", np.zeros(2, np.float32), np.zeros(3, np.float32))
    assert not found.equal
    assert describe(found) == "x: cannot be compared, float32 [2] beside float32 [3]"


def test_the_first_differing_layer_is_named_in_the_order_of_the_forward(embedded: Model) -> None:
    a = embedded.forward("one two three", capture="*")
    same = compare(a, embedded.forward("one two three", capture="*"))
    assert same.equal
    assert len(same.differences) == 4 * 12 + 3
    assert str(same) == "51 arrays, all equal bit for bit"

    changed = dict(a.activations)
    for name in ("layers.2.attn.q", "layers.1.mlp.out", "layers.2.out", "final_norm"):
        changed[name] = np.nextafter(changed[name], ml_dtypes.bfloat16(9))
    b = replace(a, activations=changed, logits=a.logits + 1)
    found = compare(b, a)
    assert found.first is not None
    assert found.first.name == "layers.1.mlp.out"
    assert found.first.ulps == 1
    assert [one.name for one in found.differences if not one.equal] == [
        "layers.1.mlp.out",
        "layers.2.attn.q",
        "layers.2.out",
        "final_norm",
        "logits",
    ]
    assert "first layers.1.mlp.out" in str(found)
    assert found._repr_html_().count("<tr>") == 52
    assert found.table().row_count == 51


def test_names_are_ordered_as_they_are_computed() -> None:
    names = ["final_norm", "layers.10.q", "layers.2.q", "layers.2.out", "embed"]
    assert in_order(names) == ["embed", "layers.2.q", "layers.2.out", "layers.10.q", "final_norm"]


def test_runs_of_other_tokens_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different tokens"):
        compare(Forward((1,), np.zeros((1, 2), np.float32)), Forward((2,), np.zeros((1, 2), np.float32)))
