"""gated_delta: the gated delta rule, row by row, with the state kept at the last commit.

    gated_delta(q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero)
        -> (o float32 [R, V, dv], DeltaState)

Shapes (K key heads, V value heads of sizes dk and dv, S slots, L layers of the state, W rows of the rings): q, k
float32 [R, K, dk]; v [R, V, dv], bfloat16 or float32 as the state's; g float32 [R, V], or [R, V, dk] for a decay of its
own for every key channel; beta float32 [R, V]; state as in `DeltaState`; layer int32 scalar; position, slot int32 [R];
commits bool [R], whether a row is committed by this step; last int32 [R], the row with which a row's segment ends;
replay int32 [S]; used int32 scalar, rows from there on are padding; key_index int32 [V], the key head that a value head
reads; zero int32 scalar 0 (see `dgpp.kernels.rounding`).

Order (a promise: the same bits from every kernel, whoever else is in the batch, and in a replay), of one row and value
head with state S [dk, dv]:

    S    = rounded(S * exp_f32(g))
    m[j] = sum over i of rounded(S[i, j] * k[i])            16 lanes over i and the tree of `dgpp.kernels.lanes`
    u[j] = rounded((v[j] - m[j]) * beta)
    S    = S + rounded(k[i] * u[j])
    o[j] = sum over i of rounded(S[i, j] * q[i])            likewise

The rows of a batch are segments, consecutive positions of one slot. A segment starts from the slot's committed S, or
from zero at position 0; then the `replay[slot]` rows before its first are applied, whose inputs are in the rings; then
its rows. What S is after the last committing row of a segment (which come before those that do not commit), or after
the replay if none commits, is committed. Inputs of rows that do not commit go into the rings, whose old rows are read
before. A slot without rows in the batch keeps what it has. Padding rows come out as +0, from the GPU unspecified.

Source: "Gated Delta Networks: Improving Mamba2 with Delta Rule" (arXiv:2412.06464), equation 10; the decay per channel
is that of Kimi Delta Attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeltaState:
    """The recurrent states of all layers and slots at their last commit, and the inputs of the rows since then.

    In the rings the row of position p is at p % W, and `gates` holds g (one value, or dk) and then beta. W may be 0
    where every row commits.
    """

    s: Any  # float32 [L, S, V, dk, dv]
    k: Any  # float32 [L, S, W, K, dk]
    v: Any  # bfloat16 (float32) [L, S, W, V, dv]
    gates: Any  # float32 [L, S, W, V, 1 + 1 or dk + 1]
