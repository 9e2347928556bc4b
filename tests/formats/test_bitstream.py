from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.formats.bitstream import pack, unpack
from tests.formats.vectors import words


def slow_bits(codes: np.ndarray, bits: int) -> list[int]:
    """The bits of a row, one by one, lowest first."""
    return [int(code) >> i & 1 for code in codes for i in range(bits)]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.integers(1, 70),
    st.sampled_from([np.uint8, np.int32, np.int16]),
    st.randoms(),
)
def test_a_row_is_a_little_endian_bit_stream(bits: int, count: int, word: type, random: object) -> None:
    codes = np.array([[random.randrange(1 << bits) for _ in range(count)] for _ in range(2)], np.uint8)  # type: ignore[attr-defined]
    packed = pack(codes, bits, word)
    for row, stored in zip(codes, packed, strict=True):
        stream = slow_bits(np.frombuffer(stored.tobytes(), np.uint8), 8)
        assert stream[: bits * count] == slow_bits(row, bits)
        assert not any(stream[bits * count :])
    if bits in (1, 2, 4, 8) or packed.nbytes // 2 % 3 == 0:
        assert (unpack(packed, bits, count) == codes).all()


def test_F_11_codes_cross_words() -> None:
    i = np.arange(128)
    three = pack((3 * i + 1) % 8, 3, np.int32)
    assert three.shape == (12,)
    assert (three[:3] == words(0xE1CC55E1, 0x55E1CC55, 0xCC55E1CC)).all()
    six = pack((7 * i + 5) % 64, 6, np.int32)
    assert six.shape == (24,)
    assert (six[:3] == words(0x21693305, 0xB13DDAFA, 0xBA781948)).all()
    assert (unpack(three, 3, 128) == (3 * i + 1) % 8).all()
    assert (np.asarray(unpack(jnp.asarray(six), 6, 128)) == (7 * i + 5) % 64).all()
