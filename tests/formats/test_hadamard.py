from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats.hadamard import butterflies, orthonormal64


def sylvester(size: int) -> np.ndarray:
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return h


@pytest.mark.parametrize("size", [32, 128])
def test_butterflies_are_sylvesters_matrix(size: int) -> None:
    x = np.random.default_rng(0).integers(-99, 99, (3, 2 * size)).astype(np.float32)
    blocks = x.reshape(3, 2, size)
    assert (butterflies(x, size).reshape(3, 2, size) == blocks @ sylvester(size)).all()
    turned = orthonormal64(x, size, 1)
    assert turned == pytest.approx((blocks @ sylvester(size) / np.sqrt(size)).reshape(3, -1), rel=1e-14, abs=1e-12)
    assert orthonormal64(turned, size, 1) == pytest.approx(x, abs=1e-12)
