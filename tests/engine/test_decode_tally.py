"""The sums over decode steps."""

from __future__ import annotations

from dgpp.engine.decode_tally import DecodeTally
from dgpp.engine.request import STEP_EDGES


def test_api_13_widths_and_durations_of_decode_steps() -> None:
    tally = DecodeTally()
    assert tally.snapshot().durations == (0,) * (len(STEP_EDGES) + 1)
    tally.add(3, 10, 16, 0.001)
    tally.add(3, 3, 16, 0.0011)
    tally.add(1, 1, 16, 99.0)
    batch = tally.snapshot()
    assert (batch.last_slots, batch.last_active, batch.padded_rows) == (16, 1, 34)
    assert batch.by_active == {3: 2, 1: 1}
    assert [at for at, count in enumerate(batch.durations) if count] == [0, 1, len(STEP_EDGES)]
