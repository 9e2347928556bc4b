"""What every format promises: one meaning in NumPy and JAX, whole or sliced, on one rank or four."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.checkpoint.slicing import local_format, local_ranges, local_shape, rank_leaves, rank_slice
from dgpp.checkpoint.spec import Leaves, TensorSpec, even_ranges
from dgpp.formats import FORMATS, Weight, format_named, reference
from dgpp.formats.arrays import stacked
from dgpp.formats.minifloat import BFLOAT16
from dgpp.kernels.lanes import LANES
from dgpp.kernels.linear.reference import linear, linear_leaves
from tests.formats.cases import BY_TAG, CASES, Case, random_weight

each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.tag)


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.int32)


def activations(rows: int, k: int, seed: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(BFLOAT16)


def test_every_kind_of_format_has_a_case() -> None:
    def kind(tag: str) -> str:
        return re.sub(r"_bare|^f32$", "", re.sub(r"exl3_[\d.]+", "exl3", tag))

    covered = {kind(case.tag) for case in CASES}
    covered |= {"gptq_int4_g128_act", "fp8_block128_chunks4", "i64", ""}  # test_gptq, test_fp8_chunked, test_integers
    covered |= {"exl3_mul1", "exl3_mcg", "exl3_3inst", "exl3_3inst_su", "f32"}
    assert {kind(tag) for tag in FORMATS} <= covered


def test_tags_are_unique_and_name_their_format() -> None:
    for tag, format in FORMATS.items():
        assert format.name == tag
        assert format_named(tag) is format
    for tag in ("fp8_block64x128", "fp8_block128x32_bf16", "fp8_group128_e8m0", "int4_g32", "int8_g32_f32"):
        assert format_named(tag).name == tag
    for tag in ("gptq_int4_g32", "gptq_int8_g64_asym_v2", "gptq_int4_g64_act"):
        assert format_named(tag).name == tag
    for tag in ("fp8_block128x128", "int3_g64", "gptq_int4_g128_asym", "fp8_block", ""):
        with pytest.raises(ValueError, match="unknown weight format"):
            format_named(tag)


def test_the_bytes_per_weight_of_the_contract() -> None:
    """The summary table of formats section 0, at 4096 x 4096."""
    expected = {
        "bf16": 2,
        "bf12": 1.5,
        "fp8_block128": 1 + 4 / 16384,
        "fp8_block32_e8m0": 1 + 1 / 1024,
        "fp8_channel": 1 + 2 / 4096,
        "nvfp4": 0.5625,
        "nvfp4_divisor": 0.5625,
        "nvfp4_csf": 0.5 + (0.5 + 1 / 256) / 16,
        "mxfp4": 0.53125,
        "mxfp8": 1.03125,
        "int4_g64": 0.53125,
        "int8_g64": 1.03125,
        "gptq_int4_g128": 0.515625,
        "int8_planes_g128": 1.015625,
        "nf4i8": 0.515625,
        "mixed346_3": 0.390625,
        "mixed346_4": 0.515625,
        "mixed346_6": 0.765625,
        "exl3_3.5_mul1": 0.4375 + 4 / 4096,
    }
    for tag, size in expected.items():
        assert format_named(tag).bytes_per_weight((4096, 4096)) == pytest.approx(
            size, rel=1.5e-3 if tag == "bf12" else 1e-6
        )
        assert format_named(tag).slice_rule


@each
def test_encode_makes_the_arrays_the_format_describes(case: Case) -> None:
    format = case.format
    arrays = random_weight(case, case.awkward)
    format.check(arrays, case.awkward)
    described = format.arrays(case.awkward)
    assert arrays.keys() >= {name for name, packed in described.items() if packed.resident}
    values = format.decode(arrays, case.awkward)
    assert values.dtype == np.float32
    assert values.shape == case.awkward
    exact = format.decode64(arrays, case.awkward)
    assert np.abs(values - exact).max() <= 2.0**-8 * np.abs(exact).max()
    held = format_named(format.loads_as)
    loaded = format.load(arrays, case.awkward)
    held.check(loaded, case.awkward)
    assert loaded.keys() == {name for name, packed in held.arrays(case.awkward).items() if packed.resident}
    assert (held.decode(loaded, case.awkward) == values).all()


LOSSES = {  # largest error of an element, relative to the largest weight under its scale
    **dict.fromkeys(("bf16", "bf12"), 2.0**-8),
    "f16": 2.0**-11,
    **dict.fromkeys(("fp8_block128", "fp8_block128_bf16", "fp8_channel", "fp8_tensor"), 0.04),
    **dict.fromkeys(("fp8_block32_e8m0", "fp8_group32_e8m0", "mxfp8"), 0.072),
    **dict.fromkeys(("nvfp4", "nvfp4_divisor"), 0.25),
    **dict.fromkeys(("mxfp4", "mxfp4_deepseek", "mxfp4_packed", "mxfp4_blocks"), 0.334),
    "int4_g64": 0.6 / 7.5,  # half a step, and the rounding of the scale itself
    "int8_g64": 1.01 / 127.5,
    "int4_g128_f16": 0.6 / 7.5,
    "int8_planes_g128": 0.6 / 127.5,
    "gptq_int4_g128": 1.01 / 8,  # the side opposite to the largest weight ends one step early
    "gptq_int8_g128": 1.01 / 128,
    **dict.fromkeys(("gptq_int4_g128_asym_v1", "gptq_int4_g128_asym_v2"), 2.02 / 15),
}
F16_SCALES = {  # the largest code under a scale that is subnormal where weights are small, and off by up to 2^-25
    **dict.fromkeys(("int8_planes_g128", "gptq_int8_g128"), 128),
    **dict.fromkeys(("int4_g128_f16", "gptq_int4_g128"), 8),
    **dict.fromkeys(("gptq_int4_g128_asym_v1", "gptq_int4_g128_asym_v2"), 15),
}


@pytest.mark.parametrize("tag", LOSSES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_encoding_is_near_and_encoding_again_loses_no_more(tag: str, data: st.DataObject) -> None:
    case = BY_TAG[tag]
    seed = data.draw(st.integers(0, 2**32 - 1))
    shape = (8, 1024 if tag == "bf12" else 128)
    values = np.random.default_rng(seed).standard_normal(shape) ** data.draw(st.sampled_from([1, 3]))
    values = values.astype(np.float32) * np.float32(2.0 ** data.draw(st.integers(-10, 10)))
    if data.draw(st.booleans()):
        values[data.draw(st.integers(0, 7))] = 0
    decoded = case.format.decode64(case.format.encode(values), shape)
    near = np.abs(values).max() * LOSSES[tag] + F16_SCALES.get(tag, 0) * 2.0**-25
    assert (np.abs(decoded - values) <= near).all()
    again = case.format.decode64(case.format.encode(decoded.astype(np.float32)), shape)
    assert (np.abs(again - decoded) <= near).all()
    if tag in ("bf16", "f16", "bf12", "mxfp8", "fp8_group32_e8m0") or tag.startswith("mxfp4"):
        assert (again == decoded).all()  # the grid of a power of two is found again


@each
def test_all_zero_weights_are_zero(case: Case) -> None:
    if case.tag.startswith("exl3") and case.tag != "exl3_2_3inst":
        pytest.skip("a search, and signs alone cannot scale a weight to zero; one rate stands for all")
    arrays = case.format.encode(np.zeros(case.awkward, np.float32))
    case.format.check(arrays, case.awkward)
    assert (case.format.decode(arrays, case.awkward) == 0).all()
    y = reference.linear(activations(2, case.awkward[1]), arrays, case.awkward, case.format)
    assert (y == 0).all()


@each
def test_the_operand_is_exact_in_the_types_it_names(case: Case) -> None:
    format = case.format
    arrays = random_weight(case, case.awkward)
    block = format.rows(arrays, case.awkward, 0, case.awkward[0])
    operand = np.asarray(format.operand(block, case.awkward))
    dtypes = {"bf16": BFLOAT16, "f16": np.float16}
    assert format.exact_in
    for name in format.exact_in:
        assert (operand.astype(dtypes[name]).astype(np.float32) == operand).all()
    if format.group is None:
        return
    scales = np.asarray(format.scales(block, case.awkward))
    assert scales.shape == (case.awkward[0], -(-case.awkward[1] // format.group))


@each
def test_the_product_is_near_the_exact_one(case: Case) -> None:
    """Against float64: bounded by float32 sums, or by the format's rounding of the activations."""
    arrays = random_weight(case, case.awkward)
    x = activations(5, case.awkward[1])
    y = reference.linear(x, arrays, case.awkward, case.format)
    exact = case.format.decode64(arrays, case.awkward)
    scale = np.abs(x.astype(np.float64)) @ np.abs(exact).T
    loose = case.tag.startswith(("nf4i8", "mixed346", "exl3"))
    assert (np.abs(y - x.astype(np.float64) @ exact.T) <= scale * (2.0**-6 if loose else 2.0**-21)).all()


@functools.cache
def compiled(ranges: tuple[tuple[int, int], ...] | None) -> jax.stages.Wrapped:
    return jax.jit(linear if ranges is None else functools.partial(linear_leaves, ranges=ranges))


TWINS = (
    *("f16", "fp8_block128_bf16", "fp8_channel_f32", "fp8_tensor_f32", "mxfp4_packed", "mxfp4_csf", "int8_g128_f16"),
    *("gptq_int8_g128", "gptq_int4_g128_asym_v2", "mixed346_4", "mixed346_6", "exl3_2_3inst", "exl3_3_mcg"),
)
"""Formats whose operand, scales and epilogue are the code of another one in the list, with other constants."""


@pytest.mark.parametrize("case", [case for case in CASES if case.tag not in TWINS], ids=lambda case: case.tag)
def test_jax_has_the_bits_of_numpy(case: Case) -> None:
    """Stacked layers, an odd number of rows of the weight, a padding row; two ranges for one format of each kind."""
    format, shape = case.format, case.awkward
    if case.tag.endswith("_csf"):
        layers = [random_weight(case, shape)]  # their arrays have lengths of their own
    else:
        layers = [random_weight(case, shape, seed) for seed in (1, 2)]
    names = [name for name, packed in format.arrays(shape).items() if packed.resident and name in layers[0]]
    stacked = {name: jnp.asarray(np.stack([layer[name] for layer in layers])) for name in names}
    x = activations(3, shape[1])
    k = shape[1]
    ranges = ((0, 32), (32, k)) if case.tag in ("bf16", "nvfp4", "fp8_block128", "int4_g64") else None
    chosen = len(layers) - 1
    w = Weight(stacked, case.tag, shape)
    ours = compiled(ranges)(x, w, jnp.int32(chosen), jnp.int32(2))
    theirs = reference.linear_leaves(x, layers[chosen], shape, format, ranges or ((0, k),))
    theirs[:, 2:] = 0
    theirs = theirs if ranges else theirs[0]
    assert np.abs(theirs).max() > 0
    assert (bits(np.asarray(ours)) == bits(theirs)).all()


def test_nan_codes_and_scales_reach_the_outputs_they_belong_to() -> None:
    for tag, field, code in (
        ("fp8_block128", "codes", 0x7F),
        ("fp8_channel", "codes", 0xFF),
        ("nvfp4", "scale", 0x7F),
        ("mxfp4", "scale", 0xFF),
        ("mxfp8", "codes", 0x7F),
        ("fp8_block32_e8m0", "scale", 0xFF),
    ):
        case = BY_TAG[tag]
        arrays = random_weight(case, case.awkward)
        arrays[field][1, 0] = code
        y = reference.linear(activations(2, case.awkward[1]), arrays, case.awkward, case.format)
        bad = np.isnan(y[0])
        assert bad[1 if tag != "fp8_block32_e8m0" else 32]
        assert bad.sum() in (1, 32)


@each
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_slice_then_decode_is_decode_then_slice(case: Case, world: int, axis: int) -> None:
    arrays = random_weight(case, case.cut)
    leaves = Leaves(axis, even_ranges(case.cut[axis]))
    spec = TensorSpec("m", case.cut, ("rows", "columns"), case.tag, leaves)
    loaded = case.format.load(arrays, case.cut)
    held = spec.held
    whole, whole64 = held.decode(loaded, case.cut), held.decode64(loaded, case.cut)
    size = case.cut[axis] // world
    for rank in range(world):
        part = rank_slice(spec, loaded, world, rank)
        local = local_shape(spec, world)
        format = local_format(spec, world)
        format.check(part, local)
        kept = np.arange(rank * size, (rank + 1) * size)
        assert (bits(format.decode(part, local)) == bits(np.take(whole, kept, axis))).all()
        assert (format.decode64(part, local) == np.take(whole64, kept, axis)).all()


@each
def test_the_disk_form_can_be_sliced_as_well(case: Case) -> None:
    arrays = random_weight(case, case.cut)
    for axis in (0, 1):
        quarter = case.cut[axis] // 4
        part = case.format.slice(arrays, case.cut, axis, quarter, 3 * quarter)
        local = tuple(2 * quarter if i == axis else size for i, size in enumerate(case.cut))
        expected = np.take(case.format.decode(arrays, case.cut), range(quarter, 3 * quarter), axis)
        assert (bits(case.format.decode(part, local)) == bits(expected)).all()
        if case.tag.endswith("_su"):
            with pytest.raises(ValueError, match="cannot be padded, since signs cannot make a weight zero"):
                case.format.pad(part, local, axis, case.cut[axis])
            continue
        padded = case.format.pad(part, local, axis, case.cut[axis])
        grown = case.format.decode(padded, case.cut)
        assert (np.take(grown, range(2 * quarter), axis) == expected).all()
        assert (np.take(grown, range(2 * quarter, 4 * quarter), axis) == 0).all()
        both = case.format.concatenate([part, part], [local, local], axis)
        assert (case.format.decode(both, case.cut) == np.concatenate([expected, expected], axis)).all()


def leaf_products(case: Case, shape: tuple[int, int], bounds: tuple[tuple[int, int], ...], world: int) -> np.ndarray:
    """The four leaves float32 [4, R, N] as the ranks of a world compute them, each from its own slice."""
    spec = TensorSpec("m", shape, ("rows", "columns"), case.tag, Leaves(1, bounds))
    loaded = case.format.load(random_weight(case, shape), shape)
    x = activations(3, shape[1])
    leaf = max(stop - start for start, stop in bounds)
    parts = []
    for rank in range(world):
        arrays = rank_slice(spec, loaded, world, rank)
        local = local_shape(spec, world)
        mine = [x[:, slice(*bounds[i])] for i in rank_leaves(world, rank)]
        if world > 1:
            mine = [np.pad(part, [(0, 0), (0, leaf - part.shape[1])]) for part in mine]
        format = local_format(spec, world)
        parts.append(reference.linear_leaves(np.concatenate(mine, 1), arrays, local, format, local_ranges(spec, world)))
    return np.concatenate(parts)


@each
def test_the_four_leaves_have_the_same_bits_in_every_world(case: Case) -> None:
    bounds = even_ranges(case.cut[1])
    one = leaf_products(case, case.cut, bounds, 1)
    assert np.abs(one).max() > 0
    for world in (2, 4):
        assert (bits(leaf_products(case, case.cut, bounds, world)) == bits(one)).all()


@pytest.mark.parametrize(
    ("tag", "shape", "bounds"),
    [
        ("fp8_block128", (8, 640), even_ranges(640)),  # 160 columns: blocks are refined to 32
        ("fp8_block128_bf16", (8, 576), even_ranges(576)),  # 144 columns: to 16
        ("fp8_block32_e8m0", (8, 576), even_ranges(576)),  # 144 columns under one scale of two blocks
        ("nvfp4", (8, 576), even_ranges(576)),
        ("fp8_channel", (8, 90), even_ranges(90)),
        ("exl3_2_3inst", (128, 640), ((0, 256), (256, 384), (384, 512), (512, 640))),  # uneven leaves
        ("mxfp4", (8, 288), ((0, 96), (96, 160), (160, 224), (224, 288))),
        ("int4_g64", (8, 320), ((0, 128), (128, 192), (192, 256), (256, 320))),
        ("gptq_int4_g128", (8, 640), ((0, 256), (256, 384), (384, 512), (512, 640))),
        ("mixed346_3", (8, 640), ((0, 256), (256, 384), (384, 512), (512, 640))),
    ],
)
def test_leaves_that_fit_no_block_or_are_uneven_keep_their_bits(
    tag: str, shape: tuple[int, int], bounds: tuple[tuple[int, int], ...]
) -> None:
    one = leaf_products(BY_TAG[tag], shape, bounds, 1)
    for world in (2, 4):
        assert (bits(leaf_products(BY_TAG[tag], shape, bounds, world)) == bits(one)).all()


def test_jax_leaves_of_a_refined_slice_equal_those_of_the_whole() -> None:
    case, shape, bounds = BY_TAG["fp8_block128"], (70, 640), even_ranges(640)
    spec = TensorSpec("m", shape, ("rows", "columns"), case.tag, Leaves(1, bounds))
    arrays = random_weight(case, shape)
    x = activations(2, 640)
    zero, used = jnp.int32(0), jnp.int32(2)

    def product(
        arrays: dict[str, np.ndarray], tag: str, x: np.ndarray, ranges: tuple[tuple[int, int], ...]
    ) -> np.ndarray:
        w = Weight({name: jnp.asarray(array) for name, array in arrays.items()}, tag, (70, x.shape[1]))
        return np.asarray(compiled(ranges)(x, w, zero, used))

    one = product(arrays, case.tag, x, bounds)
    assert (bits(one) == bits(reference.linear_leaves(x, arrays, shape, case.format, bounds))).all()
    part = rank_slice(spec, arrays, 4, 2)
    assert local_format(spec, 4).name == "fp8_block128x32"
    alone = product(part, "fp8_block128x32", x[:, 320:480], ((0, 160),))
    assert (bits(alone[0]) == bits(one[2])).all()


@each
def test_misaligned_slices_are_refused_by_name(case: Case) -> None:
    format, (n, k) = case.format, case.cut
    arrays = random_weight(case, case.cut)
    if not case.free_columns:
        with pytest.raises(
            ValueError, match=rf"^{re.escape(case.tag)}: cannot be cut at 3 along K; cuts are multiples of"
        ):
            format.slice(arrays, case.cut, 1, 3, k)
    if not case.free_rows:
        with pytest.raises(
            ValueError, match=rf"^{re.escape(case.tag)}: cannot be cut at 3 along N; cuts are multiples of"
        ):
            format.slice(arrays, case.cut, 0, 3, n)
    if not case.free_columns:
        spec = TensorSpec("m", case.cut, ("rows", "columns"), case.tag, Leaves(1, ((0, 3), (3, 6), (6, 9), (9, k))))
        with pytest.raises(ValueError, match="cannot be cut at"):
            rank_slice(spec, format.load(arrays, case.cut), 2, 0)


@each
def test_stacked_layers_decode_and_slice_like_single_ones(case: Case) -> None:
    if case.tag.endswith("_csf"):
        arrays = random_weight(case, case.cut)
        stack = {name: array[None] for name, array in arrays.items()}
        with pytest.raises(ValueError, match=f"{case.tag}: a stack"):
            case.format.slice(stack, case.cut, 0, 0, case.cut[0])
        return
    shape = case.awkward
    layers = [random_weight(case, shape, seed) for seed in (1, 2)]
    stack = {name: stacked([layer[name] for layer in layers]) for name in layers[0]}
    decoded = case.format.decode(stack, shape)
    assert decoded.shape == (2, *shape)
    for layer, values in zip(layers, decoded, strict=True):
        assert (values == case.format.decode(layer, shape)).all()
    part = case.format.slice(stack, shape, 1, 0, shape[1])
    assert (case.format.decode(part, shape) == decoded).all()


def test_a_row_of_the_product_does_not_depend_on_the_others() -> None:
    for tag in ("int4_g64", "mixed346_6", "exl3_3_mcg"):
        case = BY_TAG[tag]
        arrays = random_weight(case, case.awkward)
        x = activations(7, case.awkward[1])
        together = reference.linear(x, arrays, case.awkward, case.format)
        alone = reference.linear(x[4:5], arrays, case.awkward, case.format)
        assert (bits(together[4]) == bits(alone[0])).all()


def test_the_lanes_are_those_of_the_kernels() -> None:
    assert reference.LANES == LANES


def test_weights_that_do_not_fit_their_format_are_refused() -> None:
    x = jnp.zeros((2, 64), jnp.bfloat16)
    zero = jnp.int32(0)
    w = Weight({"codes": jnp.zeros((3, 64), jnp.uint8)}, "fp8_channel", (3, 64))
    with pytest.raises(ValueError, match="linear: w: fp8_channel: the array 'weight_scale' is missing"):
        linear(x, w, zero, zero)
    with pytest.raises(ValueError, match="linear: a weight of format 'f32' has no exact 16-bit operand"):
        linear(x, Weight({"values": jnp.zeros((3, 64))}, "f32", (3, 64)), zero, zero)
    with pytest.raises(ValueError, match="unknown weight format 'fp9'"):
        linear(x, Weight({}, "fp9", (3, 64)), zero, zero)
