from __future__ import annotations

import numpy as np

from dgpp.formats import format_named


def test_integers_are_named_directly_and_not_held() -> None:
    format = format_named("i64_bare")
    packed = format.arrays((3,))["values"]
    assert packed.tensor("ple.layer_multipliers") == "ple.layer_multipliers"
    assert (packed.tag, packed.dtype, packed.resident) == ("I64", np.dtype(np.int64), False)
    assert format.exact_in == ()
    assert format.bytes_per_weight((3,)) == 0
    assert format.load({"values": np.arange(3)}, (3,)) == {}
