"""`quant_method: "dgpp_nf4i8"` and `"dgpp_mixed346"`: GLM-5.3 with routed experts in a Hadamard basis.

`routed_experts.layers` [first, last] are the layers whose `mlp.experts` have codebook weights. For mixed346 the recipe
(`recipe_file`, or inlined as `recipe`) has a form for every expert, `layer_expert_recipes[layer][expert]`: three
digits, the bits of gate, up and down, or "existing" for one left as in the baseline. Everything else is as
`baseline-quantization-config.json` (or `baseline`) says: the compressed-tensors release they were made from.
`routed_experts.targets`, a list of expressions, names other modules than routed experts; a form is then looked up under
the layer alone, in `layer_recipes[layer]`.
Source: the GLM-5.3-NF4I8-GPTQ-H32-g128 and GLM-5.3-Mixed346-GPTQ-H32-A8-g128 releases.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dgpp.checkpoint.quantization.names import named_by_regex
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import Tags, alias

Formats = Callable[[str], Tags]
PROJECTION = re.compile(r"layers\.(?P<layer>\d+)\.mlp(?:\.experts\.(?P<expert>\d+))?\.(?P<name>gate|up|down)_proj$")
DIGIT = {"gate": 0, "up": 1, "down": 2}


def read_nf4i8(section: Section, baseline: Formats) -> Scheme:
    """The scheme of dgpp_nf4i8. Raises CheckpointError for another version of it."""
    if section.integer("version", 1) != 1:
        raise section.error(f"version {section.integer('version')} is not supported; supported: 1")
    inside = quantized_modules(section)

    def formats(module: str) -> Tags:
        return (str(alias("dgpp_nf4i8")),) if inside(module) else baseline(module)

    return Scheme("dgpp_nf4i8", section.where, formats)


def read_mixed346(section: Section, recipe: Section, baseline: Formats) -> Scheme:
    """The scheme of dgpp_mixed346."""
    inside = quantized_modules(section, everywhere=True)

    def formats(module: str) -> Tags:
        form = _form(recipe, module) if inside(module) else None
        if form is None or form == "existing":
            return baseline(module)
        match = PROJECTION.search(module)
        assert match is not None
        return (str(alias("dgpp_mixed346", bits=form[DIGIT[match["name"]]])),)

    return Scheme("dgpp_mixed346", section.where, formats)


def quantized_modules(section: Section, everywhere: bool = False) -> Callable[[str], bool]:
    """Whether `routed_experts` of a config is about a module. `everywhere`: when no layers are given, all of them."""
    routed = section.section("routed_experts")
    targets = routed.names("targets")
    layers = routed.values.get("layers")
    if layers is None and not targets and not everywhere:
        raise routed.error("layers is missing")
    wanted = None if layers is None else _layers(routed)

    def inside(module: str) -> bool:
        if targets:
            return any(named_by_regex(target.removeprefix("re:"), module, routed.where) for target in targets)
        match = PROJECTION.search(module)
        return bool(match and match["expert"] and (wanted is None or int(match["layer"]) in wanted))

    return inside


def _layers(routed: Section) -> frozenset[int]:
    """Two numbers are the first and the last layer; any other list names every layer."""
    layers = routed.values["layers"]
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise routed.error(f"layers must be a list of layer numbers, got {layers!r}")
    return frozenset(range(layers[0], layers[1] + 1) if len(layers) == 2 else layers)


def _form(recipe: Section, module: str) -> str | None:
    """The form of the expert, or of the layer, that a projection belongs to."""
    match = PROJECTION.search(module)
    if match is None:
        return None
    layer, expert = match["layer"], match["expert"]
    form: object
    if expert is None:
        form = recipe.section("layer_recipes").text(layer)
    else:
        experts = recipe.section("layer_expert_recipes").values.get(layer, {})
        number = int(expert)
        form = experts.get(expert) if isinstance(experts, dict) else (experts[number : number + 1] or [None])[0]
    if not form:
        return None
    if form != "existing" and not re.fullmatch("[346]{3}", str(form)):
        raise recipe.error(f"the form of {module} is {form!r}, not three digits of 3, 4 and 6, nor 'existing'")
    return str(form)
