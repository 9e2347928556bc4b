from __future__ import annotations

import numpy as np
import pytest

from dgpp.engine.batch import Segment, build, family_for
from dgpp.kernels.rows import Phase

TABLE = np.zeros((4, 8), np.int32)


def test_segments_of_all_phases_share_one_batch() -> None:
    segments = [
        Segment(2, 7, (11,), Phase.DECODE, (0,)),
        Segment(0, 3, (21, 22, 23), Phase.PREFILL, (2,)),
        Segment(1, 5, (31, 32), Phase.VERIFY, (0, 1)),
    ]
    batch = build(segments, TABLE, 8, 6)
    rows = batch.rows
    assert rows.token.tolist() == [11, 21, 22, 23, 31, 32, -1, -1]
    assert rows.position.tolist() == [7, 3, 4, 5, 5, 6, -1, -1]
    assert rows.slot.tolist() == [2, 0, 0, 0, 1, 1, -1, -1]
    assert rows.phase.tolist() == [2, 1, 1, 1, 3, 3, 0, 0]
    assert batch.used == 6
    assert batch.sample_rows.tolist() == [0, 3, 4, 5, 0, 0]
    assert int(batch.sample_used) == 4
    assert batch.owners == ((0, 0), (1, 2), (2, 0), (2, 1))


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 rows do not fit a family of 4"):
        build([Segment(0, 0, (1, 2, 3, 4, 5), Phase.PREFILL)], TABLE, 4, 4)
    with pytest.raises(ValueError, match="more than 1 rows are sampled"):
        build([Segment(0, 0, (1, 2), Phase.VERIFY, (0, 1))], TABLE, 4, 1)


def test_the_smallest_family_that_holds_the_rows_is_chosen() -> None:
    assert [family_for(n, (16, 64, 256)) for n in (0, 16, 17, 64, 65, 256)] == [16, 16, 64, 64, 256, 256]
    with pytest.raises(ValueError, match="257 rows does not fit the largest row family, 256"):
        family_for(257, (16, 64, 256))
