"""The uniform numbers of a request: a pure function of its seed and of how many draws came before (spec E-8.4).

Plain sampling makes one draw for every generated token, so there the counter is the index of the token among the
generated ones, and its absolute position less the length of the prompt.
"""

from __future__ import annotations

_WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """The output function of splitmix64 at state `x` plus its increment: 64 bits from 64 bits."""
    x = (x + GOLDEN) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def uniform(seed: int, counter: int) -> float:
    """Draw number `counter` of a request, in [0, 1) and a multiple of 2^-53. `seed` counts modulo 2^64."""
    return (mix(mix(counter) ^ (seed & _WORD)) >> 11) * 2.0**-53
