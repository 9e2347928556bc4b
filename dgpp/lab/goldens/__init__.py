"""Goldens: digests of what was computed once, kept as text in the repository's `goldens/`, to compare with today.

Two classes of values. **portable** ones come from exact products in a fixed order, or from no arithmetic at all: every
machine must give these bytes. **pinned** ones involve exp, a square root or a division, and belong to a key: the
backend ("cpu-x86-fma", "cpu-aarch64", "sm_90") and the minor version of JAX. For a key without a golden the values are
judged against float64 and reported; only `python -m dgpp.lab.goldens --write` makes or changes a golden.

A digest is the first 16 hexadecimal digits of the SHA-256 of an array's bytes.
"""

from dgpp.lab.goldens.cases import CASES
from dgpp.lab.goldens.check import GoldenResult, check

__all__ = ["CASES", "GoldenResult", "check"]
