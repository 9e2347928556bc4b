"""Every published layout of a Qwen release: written, opened, loaded, cut for ranks and run.

The logits are within roundings those of float64 with the values that the published formulas give to the stored tensors,
and bit for bit those of other kernels, of every world, of a table left in its files, and of a BF16 model with the same
values where a format has no others than BF16 has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import stored_tree, write_fixture
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.slicing import local_format, local_ranges, local_shape, rank_slice
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges, flatten
from dgpp.engine.core import Core
from dgpp.engine.levers import merged, parted
from dgpp.engine.open import open_model
from dgpp.engine.options import ModelOptions
from dgpp.engine.ranks import check_world
from dgpp.engine.settings import CoreSettings, SettingsError
from dgpp.formats import Weight, format_named
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.lab.model import Model
from dgpp.models import FAMILIES, Family, qwen35_releases, qwen_flash_next_releases
from tests.oracles import qwen
from tests.oracles.reading import Read, decoded

NEXT = "qwen_flash_next"
RELEASES = [("qwen35", release.name) for release in qwen35_releases.QUANTIZED] + [
    (NEXT, release.name) for release in qwen_flash_next_releases.QUANTIZED
]
EVERY = pytest.mark.parametrize(("family", "name"), RELEASES)
HYBRID, FP8 = "int4-hybrid", "fp8"
ONE_BY_DEFAULT = pytest.mark.parametrize(
    ("family", "name"), [pytest.param(*case, marks=() if case[1] == HYBRID else pytest.mark.slow) for case in RELEASES]
)
"""Compiling a model takes half a minute: one that has two checkpoints and three integer formats stands for all."""

SAID = {
    "nvfp4": ("unquantized, but 12 modules, .* as fp8_block128_bf16", "unquantized, but 4 modules, .* as fp8_tensor"),
    "nvfp4-fused-draft": ("unquantized, but 4 modules, .* as fp8_tensor",),
    "int4-autoround": ("unquantized, but 4 modules, .* as fp8_tensor",),
    "int4-hybrid": ("unquantized, but 13 modules, .* as fp8_block128",),
}
"""What is noted about releases whose tensors come from several, and whose config speaks of one."""

ONE_RANK = ("int4-autoround", "int4-hybrid")
"""Groups of 128 integers share a scale, and ranks would cut experts of 640 within one."""

EXACT = ("fp8_tensor", "mxfp8")
"""Formats of a table and of linears whose values BF16 has as well."""

IDS = (5, 900, 33, 7, 1200, 2, 2047, 0, 13, 5, 900, 33, 7, 7, 8)
"""Longer than the sparse budget, with the end of a text in it."""

ROUNDINGS = 40
"""The most roundings on the way through a layer: two mixes of the branches, a mixer, the experts, n-grams."""

PAGE = 16
CHOICES = ("layers.*.moe.experts", "layers.*.index.blocks")


@dataclass(frozen=True)
class Written:
    """A release on disk, with the checkpoint that has its table, and its tree in the formats that are stored."""

    family: Family
    checkpoint: Checkpoint
    beside: Checkpoint
    config: Any
    tree: SpecTree
    table: SpecTree  # of what is in `beside`

    @property
    def options(self) -> dict[str, str]:
        """What it takes to open it."""
        apart = self.checkpoint is not self.beside
        return {"ngram_table_model": str(self.beside.directory)} if apart else {}


Write = Callable[[str, str], Written]
Run = Callable[..., Model]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Write:
    @cache
    def write(family: str, name: str) -> Written:
        found = FAMILIES[family]
        checkpoint = Checkpoint.open(write_fixture(found, name, tmp_path_factory.mktemp("releases") / name))
        config = found.config(checkpoint.config)
        tree, table, beside = found.tree(config), {}, checkpoint
        if found.releases[name].without:
            beside = write(family, FP8).checkpoint
            tree, table = apart(found, tree)
        return Written(found, checkpoint, beside, config, resolve_tree(tree, checkpoint), resolve_tree(table, beside))

    return write


def apart(family: Family, tree: SpecTree) -> tuple[SpecTree, SpecTree]:
    source = family.supports.ngram_table
    assert source is not None
    return parted(tree, (source.path, *source.beside))


def own_tree(r: Written) -> SpecTree:
    """The tree of what a release has itself, before its formats are known."""
    whole = r.family.tree(r.config)
    return whole if r.checkpoint is r.beside else apart(r.family, whole)[0]


@pytest.fixture(scope="module")
def model(written: Write) -> Run:
    @cache
    def opened(family: str, name: str, kernels: str = "reference", world: int = 1, **options: str) -> Model:
        r = written(family, name)
        settings = CoreSettings(2, 96, PAGE, (16,), world, verify_rows=4)
        made = ModelOptions(**{**r.options, **options})
        return Model.of(open_model(str(r.checkpoint.directory), settings, select(kernels), options=made))

    return opened


def logits(m: Model) -> np.ndarray:
    return m.forward(IDS, choices(m)).logits


def choices(m: Model) -> tuple[str, ...]:
    """The names of what is chosen; every test captures them, so that a model compiles once."""
    return CHOICES if m.family.name == NEXT else CHOICES[:1] if m.config.moe else ()


# --- what is there --------------------------------------------------------------------------------------------------


@EVERY
def test_every_module_is_read_in_the_format_it_was_written_in(written: Write, family: str, name: str) -> None:
    r = written(family, name)
    assert r.tree == stored_tree(own_tree(r), r.family.releases[name])
    inventory = take_inventory(r.tree, r.checkpoint)
    assert not inventory.unused
    rows = [row.tensor for row in (*inventory.used, *inventory.ignored)]
    assert sorted(rows) == sorted(r.checkpoint.tensors)
    notes = [note for note in resolve_formats(r.checkpoint).notes if "K and V are kept in bf16" not in note]
    assert len(notes) == len(SAID.get(name, ()))
    for note, words in zip(notes, SAID.get(name, ()), strict=True):
        assert re.search(words, note)


@EVERY
def test_a_missing_tensor_is_refused_by_its_name(written: Write, family: str, name: str) -> None:
    r = written(family, name)
    last = [module for _, spec in flatten(r.tree) if spec.format != "bf16" for module in spec.modules()][-1]
    for lost in [array.tensor for array in last.arrays if not array.packed.optional][:2]:
        there = {tensor: stored for tensor, stored in r.checkpoint.tensors.items() if tensor != lost}
        broken = replace(r.checkpoint, tensors=there)
        with pytest.raises(CheckpointError, match=re.escape(last.name)):
            take_inventory(resolve_tree(own_tree(r), broken), broken)


def test_a_model_without_its_table_says_which_tensor_is_missing(written: Write) -> None:
    r = written(NEXT, HYBRID)
    with pytest.raises(CheckpointError, match=r"ngram_embedding\.shard_0\.weight' .* is missing"):
        open_model(str(r.checkpoint.directory))


@EVERY
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_hold_slices_of_the_published_values(written: Write, family: str, name: str, world: int) -> None:
    r = written(family, name)
    if name in ONE_RANK:
        with pytest.raises(SettingsError, match=rf"down_proj cannot be shared by {world} ranks: .* cut at 160 along K"):
            check_world(r.tree, {}, world)
        return
    check_world(r.tree, {}, world)
    weights = load_weights(r.tree, r.checkpoint)
    for path, spec in flatten(r.tree):
        if not spec.bands or spec.format.startswith("bf16"):
            continue
        node: Any = weights
        for key in path.split("."):
            node = node[key]
        values = spec.held.decode(node.arrays, spec.shape)
        for rank in (0, world - 1):
            arrays = rank_slice(spec, node.arrays, world, rank)
            found = local_format(spec, world).decode(arrays, local_shape(spec, world))
            expected = rank_slice(replace(spec, format="f32"), {"values": values}, world, rank)["values"]
            np.testing.assert_array_equal(found, expected, path)


# --- FP8 blocks across ranks ----------------------------------------------------------------------------------------


def experts(size: int) -> tuple[TensorSpec, TensorSpec]:
    """gate_proj and down_proj of two experts of `size`."""
    gate = TensorSpec("e.{expert}.gate_proj", (2, size, 256), ("experts", "mlp", "embed"), FP8 + "_block128_bf16")
    down = TensorSpec("e.{expert}.down_proj", (2, 256, size), ("experts", "embed", "mlp"), FP8 + "_block128_bf16")
    rows, columns = (Leaves(axis, even_ranges(size)) for axis in (1, 2))
    return replace(gate, leaves=rows), replace(down, leaves=columns)


@pytest.mark.parametrize("world", [2, 4])
def test_experts_of_640_are_cut_within_blocks_and_keep_every_bit(world: int) -> None:
    gate, down = experts(640)
    assert local_format(gate, world).name == "fp8_block32x128_bf16"
    assert local_format(down, world).name == "fp8_block128x32_bf16"
    rng, kernels = np.random.default_rng(0), select("reference")
    x = jnp.asarray(rng.standard_normal((3, 2, 640)), jnp.bfloat16)
    chosen, layer, used = jnp.array([[0, 1]] * 3, jnp.int32), jnp.int32(0), jnp.int32(3)
    arrays = down.codec.encode(rng.standard_normal(down.shape).astype(np.float32))

    def leaves(weight: Weight, inner: Any, ranges: Any) -> np.ndarray:
        weight = jax.tree.map(jnp.asarray, weight)
        return np.asarray(kernels.grouped_linear_leaves(inner, chosen, weight, layer, used, ranges))

    whole = leaves(Weight(arrays, down.format, down.shape), x, even_ranges(640))
    shape, tag = local_shape(down, world), local_format(down, world).name
    for rank in range(world):
        slices = Weight(rank_slice(down, arrays, world, rank), tag, shape)
        columns = slice(rank * 640 // world, (rank + 1) * 640 // world)
        own = slice(rank * 4 // world, (rank + 1) * 4 // world)
        np.testing.assert_array_equal(leaves(slices, x[..., columns], local_ranges(down, world)), whole[own])


def test_blocks_finer_than_16_columns_are_refused() -> None:
    _, down = experts(160)
    with pytest.raises(SettingsError, match=r"down_proj cannot be shared by 2 ranks: fp8_block128_bf16: .*16 at least"):
        check_world({"down": down}, {}, 2)


# --- what it computes -----------------------------------------------------------------------------------------------


def judged(r: Written, m: Model) -> tuple[float, float]:
    """(relative error of the logits against float64, its bound: every rounding moves by 2^-8 independently)."""
    found = m.forward(IDS, choices(m))
    exact = qwen.logits(r.checkpoint.config, published(r), IDS, chosen=found.activations)
    error = float(np.linalg.norm(found.logits - exact) / np.linalg.norm(exact))
    assert found.logits.std() > 0.2
    return error, float(np.sqrt(ROUNDINGS * r.config.layers)) * 2.0**-8


def published(r: Written) -> Read:
    own, table = decoded(r.tree, r.checkpoint), decoded(r.table, r.beside)

    def read(name: str) -> np.ndarray:
        try:
            return own(name)
        except KeyError:
            return table(name)

    return read


@ONE_BY_DEFAULT
def test_the_logits_follow_from_the_published_values(written: Write, model: Run, family: str, name: str) -> None:
    error, bound = judged(written(family, name), model(family, name))
    assert 1e-4 < error < bound


@pytest.mark.slow
@EVERY
def test_other_kernels_have_the_same_bits(model: Run, family: str, name: str) -> None:
    assert logits(model(family, name, "cpu")).tobytes() == logits(model(family, name)).tobytes()


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("world", [2, 4])
def test_every_world_has_the_same_logits(model: Run, family: str, name: str, world: int) -> None:
    if name in ONE_RANK:
        with pytest.raises(SettingsError, match=f"down_proj cannot be shared by {world} ranks"):
            model(family, name, world=world)
        return
    assert logits(model(family, name, world=world)).tobytes() == logits(model(family, name)).tobytes()


def as_bf16(tree: SpecTree, weights: dict[str, Any]) -> tuple[SpecTree, dict[str, Any]]:
    """Tree and weights with everything that is exact in BF16 in BF16."""
    out_tree: SpecTree = {}
    out: dict[str, Any] = {}
    for key, node in weights.items():
        spec: Any = tree[key]
        if not isinstance(node, Weight):
            out_tree[key], out[key] = as_bf16(spec, node)
        elif node.format not in EXACT:
            out_tree[key], out[key] = spec, node
        else:
            values = format_named(node.format).decode(node.arrays, node.shape)
            arrays = format_named("bf16").encode(values)
            assert (arrays["values"].astype(np.float32) == values).all(), key
            out_tree[key], out[key] = replace(spec, format="bf16"), replace(node, arrays=arrays, format="bf16")
    return out_tree, out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp8", "nvfp4-mxfp8", "fp4-local"])
def test_values_that_are_exact_in_bf16_give_the_logits_of_the_bf16_model(model: Run, name: str) -> None:
    m = model(NEXT, name)
    tree, weights = as_bf16(m.tree, m.weights)
    changed = [path for (path, new), (_, old) in zip(flatten(tree), flatten(m.tree), strict=True) if new != old]
    assert "layers.ple.ngram_embedding" in changed if name == "fp8" else "layers.delta_net.out_proj" in changed
    core = Core(m.family, m.config, weights, m.core.settings, m.core.kernels, tree)
    plain = replace(m, tree=tree, weights=weights, core=core, _busy=set())
    assert logits(plain).tobytes() == logits(m).tobytes()


def test_coded_scales_are_held_as_plain_ones(written: Write) -> None:
    r = written(NEXT, "fp4-local")
    specs = {path: spec for path, spec in flatten(r.tree) if spec.format == "nvfp4_csf"}
    assert {path.rpartition(".")[2] for path in specs} == {"gate_proj", "up_proj", "down_proj"}
    tree: SpecTree = {**specs}
    loaded = load_weights(tree, r.checkpoint)
    for path, spec in specs.items():
        assert loaded[path].format == "nvfp4"
        values = format_named("nvfp4").decode64(loaded[path].arrays, spec.shape)
        for module in spec.modules():
            stored = {array.field: r.checkpoint.read(array.tensor) for array in module.arrays}
            expected = spec.codec.decode64(stored, module.shape)
            np.testing.assert_array_equal(values[(spec.numbers.index(module.layer), *module.lead)], expected)


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mapped_table_of_another_checkpoint_gives_the_logits_of_a_resident_one(model: Run) -> None:
    resident, mapped = model(NEXT, HYBRID), model(NEXT, HYBRID, ngram_table="mmap")
    source = mapped.family.supports.ngram_table
    assert source is not None
    assert source.path not in dict(flatten(mapped.tree))
    assert source.path in dict(flatten(resident.tree))
    assert "ngram_embedding" not in mapped.weights["layers"]["ple"]
    expected = logits(resident)
    assert logits(mapped).tobytes() == expected.tobytes()
    names = choices(mapped)
    with mapped.session(32) as s:  # cut anywhere
        for start, stop in pairwise((0, 1, 2, 5, 8, len(IDS))):
            assert s.every(IDS[start:stop], Phase.PREFILL, names).tobytes() == expected[start:stop].tobytes()
    for accepted in (1, 2, 3, 4):
        with mapped.session(32) as s:  # a verify of which some rows are taken back
            s.every(IDS[:6], Phase.PREFILL, names)
            s.every((*IDS[6 : 6 + accepted], 9, 9, 9)[:4], Phase.VERIFY, names)
            s.rewind(6 + accepted)
            found = s.every(IDS[6 + accepted :], Phase.DECODE, names)
            assert found.tobytes() == expected[6 + accepted :].tobytes()


def test_the_table_of_another_model_is_refused(written: Write, tmp_path: Path) -> None:
    r = written(NEXT, HYBRID)
    other = dict(r.beside.config["text_config"], seed=4321)
    layout = replace(FAMILIES[NEXT].releases[FP8], config={**r.beside.config, "text_config": other})
    directory = write_fixture(replace(FAMILIES[NEXT], releases={"other": layout}), "other", tmp_path / "other")
    options = ModelOptions(ngram_table_model=str(directory))
    with pytest.raises(CheckpointError, match=r"layer_multipliers: it holds \[.*\], but config\.json makes it \["):
        open_model(str(r.checkpoint.directory), options=options)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), [(2, FP8), (4, "nvfp4-mxfp8")])
def test_a_mapped_table_is_cut_for_ranks(model: Run, world: int, name: str) -> None:
    mapped = model(NEXT, name, world=world, ngram_table="mmap")
    assert logits(mapped).tobytes() == logits(model(NEXT, name)).tobytes()


@pytest.mark.slow
def test_twelve_bits_give_the_logits_of_sixteen(model: Run) -> None:
    packed = model(NEXT, FP8, bf16_weights="bf12+bf16")
    assert dict(flatten(packed.tree))["layers.attn_hyper_connection.input_mix_weight_down"].resident == "bf12"
    assert logits(packed).tobytes() == logits(model(NEXT, FP8)).tobytes()


@pytest.mark.slow
def test_dense_weights_in_fp8_have_the_values_of_the_recipe(written: Write, model: Run) -> None:
    r = written(NEXT, FP8)
    encoded = model(NEXT, FP8, dense_weights="fp8")
    held = {path: spec for path, spec in flatten(encoded.tree) if spec.resident}
    assert len(held) == 20
    tree = dict(flatten(r.tree))
    own = decoded(r.tree, r.checkpoint)

    def read(name: str) -> np.ndarray:
        """The values after the recipe, spelled out: block by block, scale amax / 448, codes to nearest."""
        values = own(name)
        if not any(name == module for path in held for _, module in tree[path].names()):
            return values
        out = np.empty_like(values)
        for i in range(0, values.shape[0], 128):
            for j in range(0, values.shape[1], 128):
                block = values[i : i + 128, j : j + 128].astype(np.float32)
                scale = np.abs(block).max() / np.float32(448)
                codes = (block / scale).astype(jnp.float8_e4m3fn).astype(np.float64)
                out[i : i + 128, j : j + 128] = codes * np.float64(scale)
        return out

    found = encoded.forward(IDS, choices(encoded))
    exact = qwen.logits(r.checkpoint.config, read, IDS, chosen=found.activations)
    error = float(np.linalg.norm(found.logits - exact) / np.linalg.norm(exact))
    assert 1e-4 < error < float(np.sqrt(ROUNDINGS * r.config.layers)) * 2.0**-8
    assert found.logits.tobytes() != logits(model(NEXT, FP8)).tobytes()


@pytest.mark.slow
def test_yarn_runs_beyond_the_published_context(written: Write) -> None:
    r = written(NEXT, FP8)
    scaling = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512}
    settings = CoreSettings(1, 1024, PAGE, (16,), verify_rows=4)
    options = ModelOptions(rope_scaling=scaling)
    m = Model.of(open_model(str(r.checkpoint.directory), settings, select("reference"), options=options))
    assert m.core.position_ceiling == 2048
    out = m.forward(tuple(i % 997 for i in range(600)), choices(m))
    assert np.isfinite(out.logits).all()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), [("qwen35", "122b-nvfp4"), (NEXT, "nvfp4-fused-draft")])
def test_the_draft_layers_experts_in_fp8_are_loaded(written: Write, family: str, name: str) -> None:
    r = written(family, name)
    settings = CoreSettings(1, 32, PAGE, (16,))
    options = ModelOptions(mtp_expert_format="fp8")
    opened = open_model(str(r.checkpoint.directory), settings, select("reference"), draft=True, options=options)
    down = opened.weights["mtp"]["layers"]["mlp"]["experts"]["down_proj"]
    assert down.format == "fp8_block128"
    spec = next(spec for path, spec in flatten(merged(r.tree, {})) if path == "mtp.layers.mlp.experts.down_proj")
    expected = load_weights({"down": spec}, r.checkpoint)["down"]
    values = expected.arrays["values"].astype(np.float32)
    found = format_named("fp8_block128").decode(down.arrays, down.shape)
    assert 0 < np.abs(found - values).max() <= np.abs(values).max() / 16
