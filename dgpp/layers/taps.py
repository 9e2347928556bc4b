"""Named activations of a forward: what `capture=` returns.

A forward calls `taps("attn.q", x)` at its named sites. The sites lie where one kernel hands over to the next, so
that asking for them adds outputs to the program and changes no arithmetic.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.linear.fed import bare

PER_LAYER = "layers.*."


@dataclass
class Taps:
    """Collects the activations of the wanted sites while a forward is traced."""

    wanted: frozenset[str] = frozenset()
    seen: dict[str, jax.Array] = field(default_factory=dict)

    def __call__(self, site: str, x: Any) -> Any:
        """Returns `x`, keeping it under `site` when that is wanted; a function is called for what to keep."""
        if site in self.wanted:
            self.seen[site] = bare(x() if callable(x) else x)
        return x

    def scoped(self) -> Taps:
        """An empty collector for the body of a scan over layers, with the sites that layers have."""
        return Taps(frozenset(s.removeprefix(PER_LAYER) for s in self.wanted if s.startswith(PER_LAYER)))

    def add_layers(self, runs: Sequence[tuple[Sequence[int], Mapping[str, jax.Array]]]) -> None:
        """Keeps what was collected inside layers: for every run of layers their numbers, and each site's array with
        one entry per layer. Under "layers.*.<site>" they are one array, in the order of the layers that have it."""
        found: dict[str, list[tuple[Sequence[int], jax.Array]]] = {}
        for numbers, seen in runs:
            for site, x in seen.items():
                found.setdefault(site, []).append((numbers, x))
        for site, parts in found.items():
            order = np.argsort([number for numbers, _ in parts for number in numbers])
            stacked = jnp.concatenate([x for _, x in parts])
            in_order = (order == np.arange(len(order))).all()
            self.seen[PER_LAYER + site] = stacked if in_order else stacked[order]


def match_sites(pattern: str | Iterable[str], sites: Mapping[str, Sequence[int]]) -> dict[str, tuple[str, int | None]]:
    """{full name: (site, place)} of all activations that a pattern asks for.

    `sites` gives the numbers of the layers that have a site. Sites inside layers are written "layers.*.attn.q"; full
    names have a number, "layers.3.attn.q", whose place is the layer's among those that have the site. A pattern is a
    name with the wildcards of a shell, or several. Raises KeyError naming a pattern that matches nothing.
    """
    names: dict[str, tuple[str, int | None]] = {}
    for site, layers in sites.items():
        if site.startswith(PER_LAYER):
            names |= {site.replace("*", str(layer), 1): (site, place) for place, layer in enumerate(layers)}
        else:
            names[site] = (site, None)
    wanted: dict[str, tuple[str, int | None]] = {}
    for one in [pattern] if isinstance(pattern, str) else pattern:
        found = {name: at for name, at in names.items() if fnmatch.fnmatchcase(name, one)}
        if not found:
            raise KeyError(f"no activation matches {one!r}; sites: {', '.join(sites)}")
        wanted.update(found)
    return wanted
