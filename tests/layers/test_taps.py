from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.layers.taps import Taps, match_sites

SITES = {"embed": (), "layers.*.attn.q": (1, 3), "layers.*.out": (0, 1, 2, 3), "final_norm": ()}


def test_patterns_are_names_with_wildcards() -> None:
    assert match_sites("layers.*.attn.*", SITES) == {
        "layers.1.attn.q": ("layers.*.attn.q", 0),
        "layers.3.attn.q": ("layers.*.attn.q", 1),
    }
    assert match_sites(["layers.1.out", "embed"], SITES) == {
        "layers.1.out": ("layers.*.out", 1),
        "embed": ("embed", None),
    }
    assert len(match_sites("*", SITES)) == 8


@pytest.mark.parametrize("pattern", ["layers.9.out", "layers.0.attn.q"])
def test_a_pattern_that_matches_nothing_is_an_error_that_lists_the_sites(pattern: str) -> None:
    with pytest.raises(KeyError, match=rf"no activation matches '{pattern}'; sites: embed, layers"):
        match_sites(["embed", pattern], SITES)


def test_layers_that_are_collected_out_of_order_are_put_in_order() -> None:
    taps = Taps(frozenset({"layers.*.out"}))
    taps.add_layers([((0, 2), {"out": jnp.array([0, 2])}), ((1, 3), {"out": jnp.array([1, 3])})])
    assert np.asarray(taps.seen["layers.*.out"]).tolist() == [0, 1, 2, 3]
