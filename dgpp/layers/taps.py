"""Named activations of a forward: what `capture=` returns.

A forward calls `taps("attn.q", x)` at its named sites. The sites lie where one kernel hands over to the next, so
that asking for them adds outputs to the program and changes no arithmetic.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, field

import jax

PER_LAYER = "layers.*."


@dataclass
class Taps:
    """Collects the activations of the wanted sites while a forward is traced."""

    wanted: frozenset[str] = frozenset()
    seen: dict[str, jax.Array] = field(default_factory=dict)

    def __call__(self, site: str, x: jax.Array) -> jax.Array:
        """Returns `x`, keeping it under `site` when that is wanted."""
        if site in self.wanted:
            self.seen[site] = x
        return x

    def scoped(self) -> Taps:
        """An empty collector for the body of a scan over layers, with the sites that layers have."""
        return Taps(frozenset(s.removeprefix(PER_LAYER) for s in self.wanted if s.startswith(PER_LAYER)))

    def add_layers(self, stacked: dict[str, jax.Array]) -> None:
        """Keeps what a scan over layers collected: each array [L, ...] under "layers.*.<site>"."""
        self.seen.update({PER_LAYER + site: x for site, x in stacked.items()})


def match_sites(pattern: str | Iterable[str], sites: Iterable[str], layers: int) -> dict[str, str]:
    """{full name: site} of all activations that a pattern asks for.

    Sites inside layers are written "layers.*.attn.q"; full names have a number: "layers.3.attn.q". A pattern is a
    name with the wildcards of a shell, or several. Raises KeyError naming a pattern that matches nothing.
    """
    names = {}
    for site in sites:
        if site.startswith(PER_LAYER):
            names.update({site.replace("*", str(layer), 1): site for layer in range(layers)})
        else:
            names[site] = site
    wanted: dict[str, str] = {}
    for one in [pattern] if isinstance(pattern, str) else pattern:
        found = {name: site for name, site in names.items() if fnmatch.fnmatchcase(name, one)}
        if not found:
            raise KeyError(f"no activation matches {one!r}; sites: {', '.join(sites)}")
        wanted.update(found)
    return wanted
