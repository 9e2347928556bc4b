"""The shapes that models really have, as data for tests and benchmarks, and small awkward ones beside them.

SmolLM2-135M (HuggingFaceTB/SmolLM2-135M-Instruct, config.json): D = 576, H = 9, K = 3, head dimension 64, F = 1536,
V = 49152, 30 layers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearShape:
    """A weight [N, K], `layers` of them stacked (0: not stacked)."""

    name: str
    n: int
    k: int
    layers: int = 0


@dataclass(frozen=True)
class AttentionShape:
    """`heads` query heads share `kv_heads` key/value heads of dimension `dim`, in pages of `page` tokens."""

    name: str
    heads: int
    kv_heads: int
    dim: int
    page: int = 16

    @property
    def kv_index(self) -> tuple[int, ...]:
        """The key/value head of each query head."""
        return tuple(head * self.kv_heads // self.heads for head in range(self.heads))


SMOLLM2_135M = (
    LinearShape("q_proj, o_proj", 576, 576, 30),
    LinearShape("k_proj, v_proj", 192, 576, 30),
    LinearShape("gate_proj, up_proj", 1536, 576, 30),
    LinearShape("down_proj", 576, 1536, 30),
    LinearShape("head", 49152, 576),
)
SMOLLM2_135M_ATTENTION = AttentionShape("smollm2-135m", heads=9, kv_heads=3, dim=64)

SMALL = (
    LinearShape("one", 1, 1),
    LinearShape("less than a block", 5, 7),
    LinearShape("a block", 16, 16, 2),
    LinearShape("odd", 13, 83, 3),
    LinearShape("a column more than the tiles", 25, 48),
    LinearShape("several chunks", 301, 40, 2),
)
SMALL_ATTENTION = (
    AttentionShape("one head", heads=1, kv_heads=1, dim=16),
    AttentionShape("grouped", heads=6, kv_heads=2, dim=32),
    AttentionShape("one key for all", heads=5, kv_heads=1, dim=48),
    AttentionShape("a key for each", heads=3, kv_heads=3, dim=64, page=32),
)
