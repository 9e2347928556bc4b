from __future__ import annotations

import jax
import ml_dtypes
import numpy as np

from dgpp.kernels.gated.reference import swiglu
from dgpp.kernels.rounding import exp_f32_numpy


def test_swiglu_equals_numpy_bit_for_bit_and_float64_to_one_rounding() -> None:
    rng = np.random.default_rng(0)
    gate = (rng.standard_normal((33, 40)) * 8).astype(np.float32)
    up = rng.standard_normal((33, 40)).astype(np.float32)
    out = np.asarray(jax.jit(swiglu)(gate, up, np.int32(0)))
    expected = (gate / (np.float32(1) + exp_f32_numpy(-gate)) * up).astype(ml_dtypes.bfloat16)
    assert out.tobytes() == expected.tobytes()
    exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    assert (np.abs(out.astype(np.float64) - exact) <= np.abs(exact) * 2**-8 + 1e-30).all()
