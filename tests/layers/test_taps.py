from __future__ import annotations

import pytest

from dgpp.layers.taps import match_sites

SITES = ("embed", "layers.*.attn.q", "layers.*.out", "final_norm")


def test_patterns_are_names_with_wildcards() -> None:
    assert match_sites("layers.*.attn.*", SITES, 2) == {
        "layers.0.attn.q": "layers.*.attn.q",
        "layers.1.attn.q": "layers.*.attn.q",
    }
    assert match_sites(["layers.1.out", "embed"], SITES, 2) == {"layers.1.out": "layers.*.out", "embed": "embed"}
    assert len(match_sites("*", SITES, 3)) == 8


def test_a_pattern_that_matches_nothing_is_an_error_that_lists_the_sites() -> None:
    with pytest.raises(KeyError, match=r"no activation matches 'layers.9.out'; sites: embed, layers"):
        match_sites(["embed", "layers.9.out"], SITES, 2)
