from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler.prefix import Prefix, scale

values = st.sampled_from([-np.inf, -3.0, -0.0, 0.0, 0.5, 0.5000001, 7.0])


def test_E_8_3_logit_descending_then_id_ascending() -> None:
    logits = np.array([1, 3, 3, -np.inf, 2, 3, 0, -0.0], np.float32)
    prefix = Prefix.of(logits, 2)
    assert prefix.ids.tolist() == [1, 2]
    assert (prefix.present, prefix.complete) == (7, False)
    assert Prefix.of(logits, 100).ids.tolist() == [1, 2, 5, 4, 0, 6, 7]
    assert Prefix.of(logits, 7).complete


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=60), st.integers(1, 70))
def test_E_8_3_is_a_sort(logits: list[float], width: int) -> None:
    present = [i for i, value in enumerate(logits) if value > -np.inf]
    expected = sorted(present, key=lambda i: (-logits[i], i))[:width]
    prefix = Prefix.of(np.array(logits, np.float32), width)
    assert prefix.ids.tolist() == expected
    assert prefix.logits.tolist() == np.array(logits, np.float32)[expected].tolist()
    assert prefix.present == len(present)
    assert prefix.complete == (width >= len(present))


def test_E_8_1_temperature_in_float32() -> None:
    logits = np.array([1, 2, -np.inf, 3e38, -3e38], np.float32)
    scaled = scale(logits, np.float32(0.3))
    largest = np.finfo(np.float32).max
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [*(logits[:2] / np.float32(0.3)).tolist(), -np.inf, largest, -largest]
