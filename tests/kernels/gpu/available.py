"""Which tests of the Triton kernels a machine without a GPU can run."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import numpy as np
import pytest

TRITON = importlib.util.find_spec("triton") is not None


def interprets() -> bool:
    """Whether Triton's interpreter works with this NumPy."""
    return TRITON and (importlib.metadata.version("triton") >= "3.9" or np.lib.NumpyVersion(np.__version__) < "2.4.0")


needs_triton = pytest.mark.skipif(not TRITON, reason="triton is not installed (extras test and gpu)")
needs_interpreter = pytest.mark.skipif(
    not interprets(), reason="triton is not installed, or older than 3.9 beside numpy 2.4, which its interpreter needs"
)
