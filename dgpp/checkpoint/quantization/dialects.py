"""Which dialect a checkpoint's config is written in: from its files to one `Scheme`.

Read are `quantization_config` (also `compression_config`, also inside `text_config`) of config.json, and where there
is none hf_quant_config.json (modelopt) and quantize_config.json (older GPTQ).
"""

from __future__ import annotations

from collections.abc import Callable

from dgpp.checkpoint.config import read_json
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization import codebooks, composed, compressed_tensors, exl3, fp8, gptq, modelopt, mxfp4
from dgpp.checkpoint.quantization.scheme import UNDECLARED, Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import Tags
from dgpp.checkpoint.reader import Checkpoint

ANYTHING: Tags = ("*",)


def read_scheme(checkpoint: Checkpoint) -> Scheme:
    """What the config says. Raises CheckpointError naming a `quant_method`, or a field, that is not supported."""
    section = _config_section(checkpoint)
    exported = _file(checkpoint, "hf_quant_config.json")
    if section is None and exported is not None:
        return modelopt.read(exported.section("quantization"))
    if section is None and (older := _file(checkpoint, "quantize_config.json")) is not None:
        return gptq.read(older, _layers(checkpoint))
    if section is None:
        return UNDECLARED
    scheme = _read(checkpoint, section)
    if scheme.method == "modelopt" and exported is not None:
        return modelopt.either(scheme, modelopt.read(exported.section("quantization")))
    return scheme


def _config_section(checkpoint: Checkpoint) -> Section | None:
    path = checkpoint.directory / "config.json"
    text = checkpoint.config.get("text_config")
    for where, fields in ((str(path), checkpoint.config), (f"{path}: text_config", text)):
        for key in ("quantization_config", "compression_config"):
            if isinstance(fields, dict) and fields.get(key):
                return Section(where, fields).section(key)
    return None


def _read(checkpoint: Checkpoint, section: Section) -> Scheme:
    method = section.text("quant_method")
    if method not in _DIALECTS:
        raise section.error(
            f"quant_method {method!r} is not supported; supported: {', '.join(_DIALECTS)}. Use a release in one of "
            f"them, or the unquantised one"
        )
    return _DIALECTS[method](checkpoint, section)


def _exl3(checkpoint: Checkpoint, section: Section) -> Scheme:
    original = section.section("original_quantization_config")
    rest = _read(checkpoint, original).formats if original.values else None
    listed = _file(checkpoint, "quantization_config.json")
    storage = listed.section("tensor_storage") if listed is not None and listed.has("tensor_storage") else None
    return exl3.read(section, storage, rest)


def _nf4i8(checkpoint: Checkpoint, section: Section) -> Scheme:
    return codebooks.read_nf4i8(section, _baseline(checkpoint, section))


def _mixed346(checkpoint: Checkpoint, section: Section) -> Scheme:
    recipe: Section | None = section.section("recipe")
    if not section.has("recipe"):
        name = section.text("recipe_file", "quantization-recipe.json")
        if (recipe := _file(checkpoint, name)) is None:
            raise CheckpointError(f"{checkpoint.directory}: {name} is missing; it says how every expert is stored")
    assert recipe is not None
    return codebooks.read_mixed346(section, recipe, _baseline(checkpoint, section))


def _baseline(checkpoint: Checkpoint, section: Section) -> Callable[[str], Tags]:
    """What a release was before its experts were quantised again; anything when it does not say."""
    if section.has("baseline"):
        return _read(checkpoint, section.section("baseline")).formats
    if (listed := _file(checkpoint, "baseline-quantization-config.json")) is not None:
        inner = listed.section("quantization_config") if listed.has("quantization_config") else listed
        return _read(checkpoint, inner).formats
    return lambda module: ANYTHING


def _layers(checkpoint: Checkpoint) -> int | None:
    """The number of the model's layers, as config.json or its text_config says."""
    for fields in (checkpoint.config, checkpoint.config.get("text_config")):
        if isinstance(fields, dict) and isinstance(layers := fields.get("num_hidden_layers"), int):
            return layers
    return None


def _file(checkpoint: Checkpoint, name: str) -> Section | None:
    path = checkpoint.directory / name
    return Section(str(path), read_json(path)) if path.is_file() else None


_DIALECTS: dict[str, Callable[[Checkpoint, Section], Scheme]] = {
    "fp8": lambda checkpoint, section: fp8.read(section),
    "modelopt": lambda checkpoint, section: modelopt.read(section),
    "compressed-tensors": lambda checkpoint, section: compressed_tensors.read(section),
    "mxfp4": lambda checkpoint, section: mxfp4.read(section),
    "gptq": lambda checkpoint, section: gptq.read(section, _layers(checkpoint)),
    "auto-round": lambda checkpoint, section: gptq.read(section, _layers(checkpoint)),
    "exl3": _exl3,
    "dgpp_nf4i8": _nf4i8,
    "dgpp_mixed346": _mixed346,
    "dgpp_mixed": lambda checkpoint, section: composed.read(section),
}

METHODS: tuple[str, ...] = tuple(_DIALECTS)
"""The values of `quant_method` that are supported."""
