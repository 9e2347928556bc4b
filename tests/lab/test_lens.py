from __future__ import annotations

import numpy as np

from dgpp.lab.lens import lens, log_softmax
from dgpp.lab.model import Model

TEXT = "A lens shows what each layer would say"


def test_the_last_stage_of_the_lens_is_the_served_step(embedded: Model) -> None:
    found = lens(embedded, TEXT, top=3)
    logits = embedded.forward(TEXT).logits
    assert found.stages == ("embed", *(f"layers.{i}.out" for i in range(4)))
    assert found.top.shape == found.logprobs.shape == (5, len(found.ids), 3)
    assert found.top[-1, :, 0].tolist() == logits.argmax(axis=1).tolist()
    order = np.argsort(-logits, axis=1, kind="stable")[:, :3]
    assert np.array_equal(found.logprobs[-1], np.take_along_axis(log_softmax(logits), order, axis=1))


def test_rank_and_log_probability_follow_the_models_own_choice(embedded: Model) -> None:
    found = lens(embedded, TEXT)
    assert (found.rank[-1] == 0).all()
    assert np.array_equal(found.final[-1], found.logprobs[-1, :, 0])
    assert found.rank[0].any()  # before any layer it is not the choice everywhere
    chosen = found.top[:, :, 0] == found.top[-1, :, 0]
    assert np.array_equal(found.rank == 0, chosen)


def test_log_softmax_sums_to_one_and_survives_large_logits() -> None:
    values = log_softmax(np.array([[1000.0, 999.0, -1000.0]], np.float32))
    assert values.dtype == np.float32
    np.testing.assert_allclose(np.exp(values.astype(np.float64)).sum(), 1, rtol=1e-6)
