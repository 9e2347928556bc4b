from __future__ import annotations

import jax
import numpy as np
import pytest

from dgpp.formats import format_named, reference
from dgpp.formats.exl3 import EXL3
from dgpp.formats.exl3_search import search
from dgpp.formats.exl3_trellis import CODEBOOKS, codebook, new_bits, pack_symbols, states, tile_values
from dgpp.formats.minifloat import BFLOAT16
from tests.formats.vectors import hexes

RATES = (1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5)


def random_weight(format: EXL3, shape: tuple[int, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Any bits are a valid trellis."""
    rng = np.random.default_rng(seed)
    n, k = shape
    trellis = rng.integers(-32768, 32768, format.arrays(shape)["trellis"].shape).astype(np.int16)
    if format.legacy:
        signs = rng.integers(-32768, 32768, (k + n) // 16).astype(np.int16)
        return {"trellis": trellis, "su": signs[: k // 16], "sv": signs[k // 16 :]}
    suh, svh = (rng.choice([-1.0, 1.0], size) * rng.uniform(0.5, 2, size) for size in (k, n))
    return {"trellis": trellis, "suh": (suh / 16).astype(np.float16), "svh": svh.astype(np.float16)}


def slow_states(trellis: np.ndarray, rate: float) -> list[int]:
    """The 16 bits that end at every position, from a string of the tile's bits."""
    dwords = trellis.view(np.uint16).astype(np.uint32).reshape(-1, 2)
    stream = "".join(f"{low | high << 16:032b}" for low, high in dwords.tolist())
    found, end = [], 0
    for bits in new_bits(rate):
        end += int(bits)
        found.append(int("".join(stream[i % len(stream)] for i in range(end - 16, end)), 2))
    return found


def test_F_12_single_states() -> None:
    expected = {0: "3A25 3F60 C2E8", 0x1234: "C066 3E0F B89E", 0xFFFF: "B110 3ACD B936"}
    for state, values in expected.items():
        assert hexes(np.array([codebook(book)[state] for book in CODEBOOKS]).astype(np.float16)) == values


def test_F_12_codebooks_over_all_states() -> None:
    """The deviations, ranges and counts of the contract, and how few values bfloat16 holds."""
    facts = {}
    for book in CODEBOOKS:
        values = codebook(book)
        assert (values.astype(np.float16).astype(np.float32) == values).all()
        held = np.mean(values.astype(BFLOAT16).astype(np.float32) == values)
        facts[book] = (round(float(values.std()), 3), len(np.unique(values)), round(float(held), 2))
    assert facts["3inst"][0] == pytest.approx(1.244, abs=0.002)
    assert facts["mcg"][0] == pytest.approx(1.244, abs=0.002)
    assert facts["mul1"][0] == pytest.approx(1.0, abs=0.002)
    assert [facts[book][1] for book in CODEBOOKS] == [10598, 10746, 913]
    assert [facts[book][2] for book in CODEBOOKS] == [0.25, 0.23, 0.13]
    assert max(np.abs(codebook("3inst")).max(), np.abs(codebook("mcg")).max()) <= 3.985
    assert codebook("mul1").min() == pytest.approx(-3.453, abs=5e-4)
    assert codebook("mul1").max() == pytest.approx(3.348, abs=5e-4)


def test_F_12_vector_at_2_bits() -> None:
    tile = pack_symbols((np.arange(256) % 4).astype(np.uint16), 2)
    assert hexes(tile) == " ".join(["1B1B"] * 32)
    found = states(tile, 2)
    assert hexes(found) == " ".join(["6C6C B1B1 C6C6 1B1B"] * 64)
    values = {"3inst": "BDD8 3D01 B4D8 BA8F", "mcg": "367E C052 BDBC B42B", "mul1": "399E 9770 3D23 3192"}
    for book, expected in values.items():
        assert hexes(codebook(book)[found[:4]].astype(np.float16)) == expected
    rows = tile_values(tile, 2, "mul1")
    for row, value in ((0, 0.7021484), (1, -0.0018158), (8, 1.2841797)):
        assert rows[row] == pytest.approx(np.full(16, value), rel=1e-4)
        assert len(set(rows[row].tolist())) == 1


def test_F_12_vector_at_3_5_bits() -> None:
    symbols = (5 * np.arange(256)) % (1 << new_bits(3.5))
    tile = pack_symbols(symbols.astype(np.uint16), 3.5)
    assert tile.shape == (56,)
    assert hexes(tile[:4]) == "4E31 0ABE EB0A A9E0"
    assert hexes(states(tile, 3.5)[:6]) == "0758 7585 AC2A C2AF 157C 57C9"


@pytest.mark.parametrize("rate", RATES)
def test_states_are_windows_of_a_circular_stream(rate: float) -> None:
    rng = np.random.default_rng(int(2 * rate))
    tile = rng.integers(-32768, 32768, round(16 * rate)).astype(np.int16)
    found = states(tile, rate)
    assert found.tolist() == slow_states(tile, rate)
    symbols = (found & ((1 << new_bits(rate)) - 1)).astype(np.uint16)
    assert (pack_symbols(symbols, rate) == tile).all()


def test_F_12_tile_order_is_that_of_tensor_core_fragments() -> None:
    """Lane t, element j: row 2 (t & 3) + (j & 1) + 8 (j >> 1 & 1), column (t >> 2) + 8 (j >> 2 & 1)."""
    tile = np.random.default_rng(0).integers(-32768, 32768, 64).astype(np.int16)
    by_position = codebook("mcg")[states(tile, 4)]
    placed = np.full((16, 16), np.nan, np.float32)
    for t in range(32):
        for j in range(8):
            placed[2 * (t & 3) + (j & 1) + 8 * ((j >> 1) & 1), (t >> 2) + 8 * ((j >> 2) & 1)] = by_position[8 * t + j]
    assert (tile_values(tile, 4, "mcg") == placed).all()


@pytest.mark.parametrize("format", [EXL3(2, "mcg"), EXL3(3.5), EXL3(4, "3inst", legacy=True)])
def test_F_12_both_forms_of_the_product_agree(format: EXL3) -> None:
    """The dense weight in float64 against the kernel's form, whose float16 steps bound the difference."""
    shape = (256, 384)
    arrays = random_weight(format, shape)
    format.check(arrays, shape)
    x = np.random.default_rng(1).standard_normal((3, 384)).astype(BFLOAT16)
    y = reference.linear(x, arrays, shape, format)
    exact = x.astype(np.float64) @ format.decode64(arrays, shape).T
    assert np.abs(y - exact).max() < 1e-3 * np.abs(exact).max()
    # The same in float64, with the activations as the kernel rounds them: only the sums' own rounding is left.
    prepared = format.prepare(x, arrays, shape).values.astype(np.float64)
    sums = (prepared @ format.operand(arrays, shape).astype(np.float64).T).astype(np.float32)
    assert np.abs(y - format.epilogue(sums, arrays, shape)).max() < 1e-5 * np.abs(exact).max()


def test_activations_of_both_libraries_have_the_same_bits() -> None:
    format, shape = EXL3(3), (128, 256)
    arrays = random_weight(format, shape)
    x = (np.random.default_rng(1).standard_normal((4, 256)) * [[1], [1e-3], [1e-6], [3e3]]).astype(BFLOAT16)
    ours = format.prepare(x, arrays, shape).values
    theirs = jax.jit(lambda x, suh: format.prepare(x, {"suh": suh}, shape).values)(x, arrays["suh"])
    assert (np.asarray(theirs) == ours).all()
    assert (ours[2] != 0).any()  # float16 subnormals are kept


def test_F_0_4_slices_on_128_in_uneven_parts() -> None:
    """640 inputs in leaves of 256, 128, 128 and 128: the product of the parts adds up, and each part is itself."""
    format, shape = EXL3(2.5), (256, 640)
    arrays = random_weight(format, shape)
    whole = format.decode64(arrays, shape)
    for start, stop in ((0, 256), (256, 384), (512, 640)):
        part = format.slice(arrays, shape, 1, start, stop)
        assert (format.decode64(part, (256, stop - start)) == whole[:, start:stop]).all()
        assert (part["svh"] == arrays["svh"]).all()
    rows = format.slice(arrays, shape, 0, 128, 256)
    assert (format.decode64(rows, (128, 640)) == whole[128:]).all()
    padded = format.pad(rows, (128, 640), 0, 256)
    assert (format.decode64(padded, (256, 640))[128:] == 0).all()
    with pytest.raises(ValueError, match=r"exl3_2\.5_mul1: cannot be cut at 160 along K; cuts are multiples of 128"):
        format.slice(arrays, shape, 1, 0, 160)
    with pytest.raises(ValueError, match=r"exl3_2\.5_mul1: N = 256 and K = 576 must be multiples of 128"):
        format.arrays((256, 576))


@pytest.mark.parametrize(("format", "most"), [(EXL3(4), 0.012), (EXL3(3.5), 0.02), (EXL3(2, "mcg"), 0.12)])
def test_the_encoder_finds_tiles_near_the_weight(format: EXL3, most: float) -> None:
    """Squared error relative to the weight's variance; rows of very different size; a zero row stays zero."""
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((128, 128)) * np.exp2(rng.integers(-6, 6, (128, 1)))).astype(np.float32)
    values[5] = 0
    arrays = format.encode(values)
    format.check(arrays, values.shape)
    error = (format.decode64(arrays, values.shape) - values)[values.any(1)]
    rows = np.mean(error**2, 1) / np.mean(values[values.any(1)].astype(np.float64) ** 2, 1)
    assert rows.mean() < most
    assert (format.decode(arrays, values.shape)[5] == 0).all()
    if format.book in ("mcg", "mul1"):
        assert arrays["marker"].view(np.uint32) == {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}[format.book]


def test_a_found_path_closes_its_circle() -> None:
    targets = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    symbols = search(targets, 3, "mul1", 16)
    values = codebook("mul1")[states(pack_symbols(symbols, 3), 3)]
    assert ((values - targets) ** 2).mean() < 0.05
    assert ((values - targets)[:, :6] ** 2).mean() < 0.3  # also where the stream wraps


def test_tags_of_rates_and_codebooks() -> None:
    assert format_named("exl3_3.5_mul1") == EXL3(3.5)
    assert format_named("exl3_4_mul1").arrays((128, 256))["trellis"].shape == (16, 8, 64)
    assert format_named("exl3_1.5_mul1").arrays((128, 256))["trellis"].shape == (16, 8, 24)
    assert "marker" not in format_named("exl3_4_3inst").arrays((128, 128))
    assert format_named("exl3_4_mcg").arrays((128, 128))["marker"].tensor("m") == "m.mcg"
    with pytest.raises(ValueError, match=r"unknown weight format 'exl3_4\.5_mul1'"):
        format_named("exl3_4.5_mul1")
