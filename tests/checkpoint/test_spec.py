"""What a spec says: layers that are not consecutive, experts and parts as modules of their own, bands, alternatives."""

from __future__ import annotations

import pytest

from dgpp.checkpoint.spec import Either, Leaves, SpecTree, TensorSpec, even_ranges, flatten, nested


def test_layers_need_not_be_consecutive() -> None:
    spec = TensorSpec("layers.{layer}.q", (4, 4), ("heads", "embed"), numbers=(3, 7, 11))
    assert (spec.layers, spec.stack) == (3, (3, 7, 11))
    assert list(spec.names()) == [(3, "layers.3.q"), (7, "layers.7.q"), (11, "layers.11.q")]
    assert spec.nbytes == 3 * 32
    head = TensorSpec("head", (4, 4), ("vocab", "embed"))
    assert (head.layers, head.stack, head.bands) == (0, (0,), ())


def test_every_expert_is_a_module() -> None:
    spec = TensorSpec("l.{layer}.experts.{expert}.up", (2, 8, 32), ("experts", "mlp", "embed"), "nvfp4", numbers=(5,))
    modules = list(spec.modules())
    assert [(m.name, m.layer, m.shape, m.lead) for m in modules] == [
        ("l.5.experts.0.up", 5, (8, 32), (0,)),
        ("l.5.experts.1.up", 5, (8, 32), (1,)),
    ]
    scale = next(array for array in modules[1].arrays if array.field == "scale")
    assert (scale.tensor, scale.packed.shape) == ("l.5.experts.1.up.weight_scale", (8, 2))
    assert spec.nbytes == 2 * (8 * 16 + 8 * 2 + 4 + 4)  # the activation scale is in the files as well


def test_parts_hold_rows_and_the_whole_holds_what_they_share() -> None:
    spec = TensorSpec(
        "t.{layer}.shard_{part}", (6, 16), ("ngrams", "embed"), "fp8_tensor", numbers=(1,), linear=False, parts=3,
        whole="t.{layer}",
    )  # fmt: skip
    (module,) = spec.modules()
    assert (module.name, module.shape, module.lead) == ("t.1", (6, 16), ())
    codes = [(array.tensor, array.packed.shape, array.rows) for array in module.arrays if array.field == "codes"]
    assert codes == [(f"t.1.shard_{part}.weight", (2, 16), (2 * part, 2 * part + 2)) for part in range(3)]
    (scale,) = (array for array in module.arrays if array.field == "scale")
    assert (scale.tensor, scale.rows) == ("t.1.weight_scale", None)


@pytest.mark.parametrize("tag", ["gptq_int4_g128", "fp8_block128"])
def test_parts_that_do_not_follow_one_another_are_refused(tag: str) -> None:
    spec = TensorSpec("t.{part}", (192, 256), ("a", "b"), tag, parts=3, whole="t")
    with pytest.raises(ValueError, match=f"t: parts of 64 rows do not lie one after the other in {tag}"):
        next(spec.modules())


def test_bands_are_ranges_of_one_axis() -> None:
    q, k = Leaves(0, even_ranges(8)), Leaves(0, ((8, 10), (8, 10), (10, 12), (10, 12)), partition=False)
    assert TensorSpec("m", (12, 4), ("a", "b"), leaves=(q, k)).bands == (q, k)
    assert TensorSpec("m", (8, 4), ("a", "b"), leaves=q).bands == (q,)
    with pytest.raises(ValueError, match="m: bands are ranges of one axis"):
        TensorSpec("m", (12, 8), ("a", "b"), leaves=(q, Leaves(1, even_ranges(8))))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numbers": (3, 1)}, r"m: layer numbers must ascend, got \(3, 1\)"),
        ({"numbers": (1, 1)}, "layer numbers must ascend"),
        ({"parts": 2, "whole": "t"}, "m: a table in parts needs"),
        ({"source": "m.{part}"}, r"m\.\{part\}: a table in parts needs"),
        ({"source": "m.{part}", "parts": 2}, "a table in parts needs"),
        ({"source": "m.{part}", "parts": 3, "whole": "m"}, "`parts` that divide N"),
        ({"source": "m.{expert}"}, r"m\.\{expert\}: experts need a shape \[E, N, K\], not \[4, 4\]"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TensorSpec(**{"source": "m", "shape": (4, 4), "axes": ("a", "b"), **changes})  # type: ignore[arg-type]


def test_of_alternatives_the_first_is_meant() -> None:
    one, other = (TensorSpec(name, (4,), ("embed",)) for name in ("one", "other"))
    tree: SpecTree = {"layers": {"experts": Either(({"a": one}, {"b": other, "c": other}))}, "norm": other}
    assert [path for path, _ in flatten(tree)] == ["layers.experts.a", "norm"]


def test_paths_make_the_tree_that_they_come_from() -> None:
    spec = TensorSpec("one", (4,), ("embed",))
    tree: SpecTree = {"layers": {"mlp": {"up": spec, "down": spec}, "norm": spec}, "norm": spec}
    assert nested(flatten(tree)) == tree
    assert list(nested(reversed(list(flatten(tree))))) == ["norm", "layers"]


def test_E_2_6_ranges_count_in_units() -> None:
    assert even_ranges(10, unit=16) == ((0, 32), (32, 80), (80, 112), (112, 160))
    assert even_ranges(10, start=100) == ((100, 102), (102, 105), (105, 107), (107, 110))
