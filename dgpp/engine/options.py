"""The engine's options about a model: in which form weights are held, where a table lies, how positions are scaled.

The defaults run a checkpoint as it is published. Some of the others change numbers; each says so in `EFFECTS`, and a
command names every one that is set when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

CHOICES = {
    "dense_weights": ("checkpoint", "fp8"),
    "bf16_weights": ("checkpoint", "bf12", "bf12+bf16"),
    "mtp_expert_format": ("checkpoint", "fp8"),
    "ngram_table": ("resident", "mmap"),
    "delta_form": ("step", "chunked"),
}
"""The values of the options that have a list of them; the first is the default."""

EFFECTS = {
    "dense_weights": "BF16 linears outside the experts are encoded as block FP8 at load; changes results",
    "bf16_weights": "BF16 linears are held in 12 bits; the same results",
    "mtp_expert_format": "BF16 experts of the draft layer are encoded as block FP8 at load; changes drafts",
    "ngram_table": "the n-gram table stays in its files; the same results",
    "ngram_table_model": "the n-gram table of this checkpoint",
    "delta_form": "DeltaNet layers read long prompts in chunks; results depend on how a prompt is cut",
    "rope_scaling": "positions are scaled beyond the published context; changes results",
}
"""What an option does where it is not the default."""


class OptionsError(ValueError):
    """An option that is not known, or not supported; the message names its key and what is supported."""


@dataclass(frozen=True)
class ModelOptions:
    """The options by their keys under `engine`.

    `dense_weights` "fp8": the linears that the family lists, as far as they are stored as BF16, are encoded in FP8
    blocks of 128 x 128 at load. `bf16_weights` "bf12": every BF16 linear whose shape and slices allow it is held in
    the lossless 12-bit form; "bf12+bf16", which other engines need for steps of many rows, means the same here, since
    one form is read at every number of rows. `mtp_expert_format` "fp8": as `dense_weights`, for the routed experts of
    the draft layer; in which layout they are stored is found out and not an option.
    `ngram_table` "mmap" reads rows of the n-gram table from its files when they are needed; `ngram_table_model` is the
    directory or hub id of another checkpoint whose table it is. `delta_form` "chunked" reads prompts through matrix
    products over 64 tokens in DeltaNet layers, which gives up the claims `phase` and `chunk`. `rope_scaling` {"factor",
    …} is a YaRN ramp, see `Rope.scaled`; its "rope_type" may only be "yarn".

    Raises OptionsError naming a key whose value is not known.
    """

    dense_weights: str = "checkpoint"
    bf16_weights: str = "checkpoint"
    mtp_expert_format: str = "checkpoint"
    ngram_table: str = "resident"
    ngram_table_model: str = ""
    delta_form: str = "step"
    rope_scaling: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuses unknown values."""
        for key, known in CHOICES.items():
            if (value := getattr(self, key)) not in known:
                raise OptionsError(f"engine.{key} {value!r} is not supported; supported: {', '.join(known)}")
        scaling = self.rope_scaling
        if scaling is not None and not isinstance(scaling, Mapping):
            raise OptionsError(f"engine.rope_scaling must be an object, got {scaling!r}")
        for name in ("rope_type", "type"):
            if scaling and scaling.get(name, "yarn") != "yarn":
                raise OptionsError(f"engine.rope_scaling.{name} {scaling[name]!r} is not supported; supported: yarn")

    @property
    def yarn(self) -> dict[str, Any]:
        """`rope_scaling` without the name of its type."""
        return {key: value for key, value in (self.rope_scaling or {}).items() if key not in ("rope_type", "type")}

    def changed(self) -> Iterator[tuple[str, Any]]:
        """(key, value) of every option that is not the default."""
        for option in fields(self):
            if (value := getattr(self, option.name)) != option.default:
                yield option.name, value

    def lines(self) -> Iterator[str]:
        """One line for every option that is not the default, with what it does."""
        for key, value in self.changed():
            yield f"engine.{key} = {value}: {EFFECTS[key]}"
