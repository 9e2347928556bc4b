"""What a checkpoint's config says about its weights, whichever dialect it is written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dgpp.checkpoint.quantization.names import parts_of
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags


@dataclass(frozen=True)
class Scheme:
    """A quantization method: `formats(module)` are the patterns of tags that the config gives to a module.

    `where` names the file and field, for messages; `kv_cache` is what it says about scales of a quantised K/V cache.
    """

    method: str
    where: str
    formats: Callable[[str], Tags]
    kv_cache: str = ""

    def declared(self, module: str) -> Tags:
        """What the config says of a module; of a fused one, also what it says of its parts."""
        found = dict.fromkeys(tag for name in (module, *parts_of(module)) for tag in self.formats(name))
        return tuple(found)


UNDECLARED = Scheme("none", "config.json", lambda module: UNQUANTIZED)
"""A checkpoint whose config says nothing about quantization."""
