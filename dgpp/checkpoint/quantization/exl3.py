"""`quant_method: "exl3"`: exllamav3, whose quantization_config.json lists what is stored how.

`tensor_storage` maps a module to its `quant_format`, `bits_per_weight` and the multiplier that names its codebook. Bit
rates differ from module to module, so `bits` of the config is only a mean. What is not listed is stored as
`original_quantization_config` says, or unquantised. Without the list any module may be either.
Source: exllamav3 1.6 conversion/compile.py.
"""

from __future__ import annotations

from collections.abc import Callable

from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import ALIASES, UNQUANTIZED, Tags

ANY_RATE = ALIASES["exl3"]


def read(section: Section, storage: Section | None, original: Callable[[str], Tags] | None = None) -> Scheme:
    """The scheme; `storage` is the object `tensor_storage`, `original` what a module had before it was quantised."""
    rest = original or (lambda module: UNQUANTIZED)
    stored = None if storage is None else {name: _tags(storage.section(name)) for name in storage.values}

    def formats(module: str) -> Tags:
        if stored is None:
            return (ANY_RATE, *rest(module))
        return stored.get(module) or rest(module)

    return Scheme("exl3", section.where, formats)


def _tags(entry: Section) -> Tags:
    """The tags of one module; none for one that was left as it was."""
    if entry.text("quant_format") != "exl3":
        return ()
    rate = entry.values.get("bits_per_weight")
    book = next((name for name in ("mul1", "mcg") if entry.has(f"{name}_multiplier")), None)
    tag = f"exl3_{rate:g}_{book or '*'}" if isinstance(rate, int | float) else ANY_RATE
    return tag, f"{tag}_su"
