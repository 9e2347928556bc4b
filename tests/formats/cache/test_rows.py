"""Cache rows (formats section 14): the vectors, both libraries, and what a row may not depend on."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dgpp.formats.bitstream import unpack
from dgpp.formats.cache import (
    CACHE_FORMATS,
    CacheFormat,
    FP4Block,
    FP8Block,
    IndexFP4,
    IndexFP8,
    KVRows,
    LatentFP4,
    LatentFP8,
    bytes_per_row,
)
from dgpp.formats.hadamard import orthonormal64
from dgpp.formats.minifloat import BFLOAT16, E2M1_TABLE, E4M3_TABLE, E8M0_TABLE
from tests.formats.vectors import bf16, bf16_hex, f32, hexes

FORMATS = [*CACHE_FORMATS.values(), LatentFP8(tail=64), LatentFP4(tail=64)]


def width(format: CacheFormat) -> int:
    return (
        128 if format.name.startswith("index") else 512 + getattr(format, "tail", 0) * format.name.startswith("latent")
    )


def rows_of(format: CacheFormat) -> np.ndarray:
    """Rows of very different size, with blocks of zeros, a zero row and an outlier."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 4, width(format))) * np.exp2(rng.integers(-8, 8, (2, 4, 1)))
    rows[0, 1] = 0
    rows[1, 0, :64] = 0
    rows[1, 1, 7] *= 1000
    return rows.astype(BFLOAT16)


def test_F_14_1_vector() -> None:
    row = bf16("3F80 BF00 3EAB 4030 0000 C000 3A83 3FC0")
    planes = KVRows().encode(row)
    assert hexes(planes["codes"]) == "72 EA 66 7E 00 FA 22 77"
    assert planes["scale"] == f32(0x3BC92493)
    assert bf16_hex(KVRows().decode(planes, 8)) == "3F7B BEFB 3EB0 4030 0000 BFFB 3A7B 3FBD"
    assert bytes_per_row(KVRows(), 192) + bytes_per_row(KVRows(), 128) == 328  # MiMo


def test_F_14_2_vector() -> None:
    """The row i/8 - 1.5. Its bytes as the recipe gives them: elements 4 and 5 are -1 / S = -3.93, code E, and
    -0.875 / S = -3.44, code D; elements 16 and 17 are 0.5 / S' = 1.26 and 0.625 / S' = 1.58, both code 3."""
    row = (np.arange(32) / 8 - 1.5).astype(BFLOAT16)
    planes = LatentFP4().encode(row)
    assert hexes(planes["row"][:18]) == "FF EE DE CD BC 9A 10 32 33 44 55 55 66 66 77 77 79 7E"
    assert planes["scale"] == f32(0x3A679E7A)
    values = LatentFP4().decode(planes, 32)
    assert values[:3].tolist() == [-1.5234375, -1.5234375, -1.015625]
    assert values[16] == 0.59375
    s = np.repeat(E4M3_TABLE[planes["row"][16:18]].astype(np.float64) * planes["scale"], 16)
    distance = np.abs(row.astype(np.float64)[:, None] / s[:, None] - E2M1_TABLE)
    chosen = np.take_along_axis(distance, unpack(planes["row"][:16], 4, 32)[:, None].astype(int), 1)[:, 0]
    assert (chosen <= distance.min(1) + 1e-6).all()


def test_F_14_2_bytes_per_row() -> None:
    assert bytes_per_row(CACHE_FORMATS["bf16"], 512) == 1024
    assert LatentFP8().planes(512)["row"].nbytes == 512
    assert LatentFP4().planes(512)["row"].nbytes == 288
    assert CACHE_FORMATS["bf16"].planes(576)["rows"].nbytes == 1152
    assert LatentFP8(tail=64).planes(576)["row"].nbytes == 640
    assert LatentFP4(tail=64).planes(576)["row"].nbytes == 416


@pytest.mark.parametrize("format", [LatentFP8(tail=64), LatentFP4(tail=64)])
def test_F_14_2_the_rotary_tail_is_untouched_and_unseen(format: LatentFP8 | LatentFP4) -> None:
    rows = rows_of(format)
    louder = rows.copy()
    louder[..., 512:] *= BFLOAT16.type(1000)
    quiet, loud = format.encode(rows), format.encode(louder)
    assert (quiet["scale"] == loud["scale"]).all()
    values = format.decode(loud, 576)
    assert (values[..., 512:] == louder[..., 512:].astype(np.float32)).all()
    assert (values[..., :512] == format.decode(quiet, 576)[..., :512]).all()


def test_F_14_3_vectors() -> None:
    planes = IndexFP8().encode(((np.arange(128) % 7) - 3).astype(BFLOAT16))
    assert hexes(planes["codes"][:8]) == "D6 C3 56 DA E0 DA E7 5A"
    assert planes["scale"] == f32(0x3D000000) == 0.03125
    one = np.zeros(128, BFLOAT16)
    one[0] = 1
    planes = IndexFP8().encode(one)
    assert set(planes["codes"].tolist()) == {0x7B}
    assert planes["scale"] == 2.0**-12


def test_F_14_3_keys_are_rotated_and_scaled_by_a_power_of_two() -> None:
    rows = rows_of(IndexFP8())
    planes = IndexFP8().encode(rows)
    mantissa, _ = np.frexp(planes["scale"])
    assert (mantissa == 0.5).all()
    values = IndexFP8().decode(planes, 128)
    assert (values.astype(BFLOAT16).astype(np.float32) == values).all()
    exact = orthonormal64(rows.astype(np.float64), 128, -1)
    assert (np.abs(values - exact) <= np.abs(exact) * 2**-3.9 + planes["scale"][..., None] * 2.0**-10).all()


def test_F_14_4_fp4_block_vector() -> None:
    planes = FP4Block().encode((np.arange(16) / 8 - 1.5).astype(BFLOAT16))
    assert hexes(planes["row"]) == "FF EE EE CD BC 9A 10 32 28"
    assert E4M3_TABLE[0x28] == 0.25


def test_F_14_4_bytes_and_layout_of_deepseek_rows() -> None:
    window, rope = FP8Block(), FP8Block(group=64, tail=64)
    assert bytes_per_row(window, 512) == 528
    assert bytes_per_row(rope, 512) == 584
    assert bytes_per_row(FP4Block(), 512) == 288
    row = np.zeros(512, BFLOAT16)
    row[3], row[40], row[500] = 448, 7, 5
    stored = window.encode(row)["row"]
    # Group 0: 448 needs 2^0; group 1: 7 needs 2^-6, the code of 448; empty groups take the floor of 1e-4.
    assert stored[[3, 512, 40, 513]].tolist() == [0x7E, 127, 0x7E, 121]
    assert E8M0_TABLE[stored[514]] == 2.0**-22
    stored = rope.encode(row)["row"]
    assert stored[448 + 2 * 52 : 448 + 2 * 53].tolist() == [0xA0, 0x40]  # 5.0 in bf16, low byte first
    assert stored[448 + 128] == 127
    assert stored[583] == 0
    assert rope.decode({"row": stored}, 512)[[3, 40, 500]].tolist() == [448, 7, 5]


def test_F_14_4_index_keys_of_fp4_are_exact_within_14_binades() -> None:
    """E2M1 under powers of two per 32, held as E4M3 under one power of two."""
    key = np.zeros(128, BFLOAT16)
    grid = E2M1_TABLE[np.arange(32) % 16]
    for block, power in enumerate((0, -5, -13, -14)):
        key[32 * block : 32 * block + 32] = (grid * 2.0**power).astype(BFLOAT16)
    planes = IndexFP4().encode(key)
    assert planes["scale"] == 2.0**-6
    assert (IndexFP4().decode(planes, 128) == key.astype(np.float32)).all()
    key[96:] = (grid * 2.0**-16).astype(BFLOAT16)
    assert (IndexFP4().decode(IndexFP4().encode(key), 128)[:96] == key[:96].astype(np.float32)).all()
    assert (IndexFP4().decode(IndexFP4().encode(key), 128) != key.astype(np.float32)).any()


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f"{f.name}-{getattr(f, 'tail', 0)}")
def test_rows_are_the_same_in_both_libraries_and_alone(format: CacheFormat) -> None:
    rows = rows_of(format)
    dim = width(format)
    planes = format.encode(rows)
    expected = format.planes(dim)
    assert planes.keys() == expected.keys()
    for name, plane in planes.items():
        assert plane.dtype == expected[name].dtype
        assert plane.shape == (2, 4, *expected[name].shape)
    values = format.decode(planes, dim)
    assert (values.astype(BFLOAT16).astype(np.float32) == values).all()
    assert (values[0, 1] == 0).all()
    compiled, decoded = jax.jit(lambda x: (p := format.encode(x), format.decode(p, dim)))(rows)
    for name, plane in planes.items():
        assert (np.asarray(compiled[name]) == plane).all()
    assert (np.asarray(decoded) == values).all()
    alone = format.encode(rows[1, 2])
    for name, plane in planes.items():
        assert (alone[name] == plane[1, 2]).all()


def test_wrong_widths_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="index_fp8: index keys are 128 wide, not 64"):
        IndexFP8().planes(64)
    with pytest.raises(ValueError, match="latent_fp4: a latent of 500 values is not a multiple of 16"):
        LatentFP4().planes(500)
    with pytest.raises(ValueError, match="fp8_block: 500 quantised values are not a multiple of 32"):
        FP8Block().planes(500)
    with pytest.raises(ValueError, match="fp4_block: 500 values are not a multiple of 16"):
        FP4Block().planes(500)
