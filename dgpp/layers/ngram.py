"""The hash of the n-gram embedding: which rows of the table stand for a token and the ones before it.

y_0 is the token, y_s the token s before it, or EOS when one of the s tokens between or the start of the text comes
first. With 64-bit multipliers m_s, mix_n = (y_0 m_0) xor ... xor (y_(n-1) m_(n-1)); each of the heads of order n has a
prime P and reads row mix_n mod P of its part of the table. Source: `Qwen4ExpTextNGramEmbedding` of transformers 5.24.

All of it is exact. JAX has no 64-bit integers here, so the products of every token are tables of two 32-bit words made
on the host, the xor goes word by word, and the remainder takes the low word a few bits at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.rows import Rows
from dgpp.kernels.window import window

STATE = ("ngram.tokens",)
"""Its state: a ring of tokens, int32 [] each (before = ngram_size - 1)."""

LEAVES = 4
MASK64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
LAYER_PRIME = 10007


@dataclass(frozen=True)
class NgramTable:
    """One table, as the config derives it; fields are those of config.json.

    `eos` is the config's own end-of-text id (its first), not that of the generation config. `index` counts the layers
    that have a table. Raises ValueError when a remainder would not fit into 31 bits.
    """

    vocab_size: int
    eos: int
    ngram_size: int
    heads_per_ngram: int
    base: int  # ngram_vocab_size_base
    multiple: int  # make_ngram_vocab_size_divisible_by
    seed: int
    index: int = 0

    def __post_init__(self) -> None:
        if self.rows >= 2**31:
            raise ValueError(
                f"config.json: ngram_vocab_size_base {self.base} makes an n-gram table of {self.rows} rows; their "
                "numbers must fit into 31 bits"
            )

    @property
    def heads(self) -> int:
        """Hash heads, those of order 2 first."""
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def orders(self) -> tuple[int, ...]:
        """The length of the n-gram that each head hashes."""
        return tuple(2 + head // self.heads_per_ngram for head in range(self.heads))

    @cached_property
    def multipliers(self) -> tuple[int, ...]:
        """m_s for s below ngram_size: odd, and small enough that no product with a token reaches 2^63."""
        half = max(1, ((1 << 63) - 1) // self.vocab_size // 2)
        start = self.seed + LAYER_PRIME * self.index
        return tuple(2 * (splitmix64(start + GAMMA * (s + 1)) % half) + 1 for s in range(self.ngram_size))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """P of each head: consecutive primes from `base` on, each table taking up where the last one ended."""
        primes = _primes(self.base)
        return tuple(next(primes) for _ in range((self.index + 1) * self.heads))[-self.heads :]

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each head."""
        return tuple(sum(self.sizes[:head]) for head in range(self.heads))

    @cached_property
    def rows(self) -> int:
        """Rows of the table, filled up to a multiple of `multiple`."""
        return -(-sum(self.sizes) // self.multiple) * self.multiple

    @property
    def bits(self) -> int:
        """Bits of the largest prime."""
        return max(self.sizes).bit_length()

    def products(self) -> np.ndarray:
        """token * m_s for every token: uint32 [ngram_size, V, 2], the high word first."""
        token = np.arange(self.vocab_size, dtype=np.uint64)
        exact = np.stack([token * np.uint64(m) for m in self.multipliers])
        return np.stack([exact >> np.uint64(32), exact & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)

    def ranked(self, world: int) -> dict[str, np.ndarray]:
        """What each rank needs of its heads, arrays [W, heads / W]: "ngram.sizes" uint32, "ngram.offsets" int32
        (rows of the rank's own part of the table, whose four leaves are padded to one length), "ngram.orders" int32.

        Raises ValueError when the heads cannot be cut in four leaves.
        """
        if self.heads % LEAVES:
            raise ValueError(f"an n-gram table of {self.heads} heads cannot be cut in {LEAVES} leaves")
        offsets = np.array(self.offsets)
        if world > 1:
            starts = offsets[:: self.heads // LEAVES]
            size = int(np.diff([*starts, self.rows]).max())
            place = np.arange(LEAVES) % (LEAVES // world) * size - starts
            offsets = offsets + np.repeat(place, self.heads // LEAVES)
        columns = {"sizes": (self.sizes, np.uint32), "offsets": (offsets, np.int32), "orders": (self.orders, np.int32)}
        return {f"ngram.{name}": np.array(x, dtype).reshape(world, -1) for name, (x, dtype) in columns.items()}

    def ids(self, tokens: Sequence[int], before: Sequence[int] = ()) -> np.ndarray:
        """The rows of every token of `tokens`, which follow `before`: int64 [T, heads], for a table on the host."""
        text = np.array([*[self.eos] * (self.ngram_size - 1), *before, *tokens], np.int64)
        grams = [text]
        for s in range(1, self.ngram_size):
            shifted = np.concatenate([np.full(s, self.eos), text[:-s]])
            grams.append(np.where(grams[-1] == self.eos, self.eos, shifted) if s > 1 else shifted)
        mixed = [grams[0] * np.int64(self.multipliers[0])]
        for y, m in zip(grams[1:], self.multipliers[1:], strict=True):
            mixed.append(mixed[-1] ^ (y * np.int64(m)))
        columns = [mixed[n - 1] % p + at for n, p, at in zip(self.orders, self.sizes, self.offsets, strict=True)]
        return np.stack(columns, axis=1)[len(text) - len(tokens) :]


def ngram_ids(
    table: NgramTable,
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(rows of this rank's part of the table for every token of the batch, int32 [R, heads / W]; state).

    `constants` are `table.ranked`, a rank's row of each, and `table.products` as "ngram.products". The state is the
    ring "ngram.tokens".
    """
    shifted, ring = window(rows.token, state["ngram.tokens"], state_layer, rows, tuple(range(1, table.ngram_size)))
    grams = [rows.token]
    for s, y in enumerate(shifted, 1):
        ended = rows.position < s
        if s > 1:
            ended |= grams[-1] == table.eos
        grams.append(jnp.where(ended, table.eos, y))

    mixed: list[jax.Array] = []
    for products, y in zip(constants["ngram.products"], grams, strict=True):
        words = products[jnp.clip(y, 0, table.vocab_size - 1)]  # uint32 [R, 2]
        mixed.append(words ^ mixed[-1] if mixed else words)
    words = jnp.stack(mixed)[constants["ngram.orders"] - 1]  # [h, R, 2]
    sizes = constants["ngram.sizes"][:, None]
    ids = _remainder(words[..., 0], words[..., 1], sizes, table.bits).T.astype(jnp.int32) + constants["ngram.offsets"]
    return ids, {**state, "ngram.tokens": ring}


def _remainder(high: jax.Array, low: jax.Array, size: jax.Array, bits: int) -> jax.Array:
    """(high * 2^32 + low) mod size in uint32, for sizes below 2^bits: the low word joins in pieces that fit."""
    step, left = 32 - bits, 32
    rest = high % size
    while left:
        take = min(step, left)
        left -= take
        piece = (low >> left) & ((1 << take) - 1)
        rest = ((rest << take) | piece) % size
    return rest


def splitmix64(state: int) -> int:
    """One output of the SplitMix64 generator (Steele, Lea, Flood 2014) from `state`."""
    z = (state + GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def _primes(start: int) -> Iterator[int]:
    """The primes from `start` on, ascending."""
    n = max(2, start)
    while True:
        if all(n % d for d in range(2, math.isqrt(n) + 1)):
            yield n
        n += 1
