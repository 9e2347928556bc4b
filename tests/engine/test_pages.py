from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dgpp.engine.pages import OutOfPages, PagePool


def test_E_5_1_page_0_is_handed_out_first_and_freed_pages_are_reused_last_in_first_out() -> None:
    pool = PagePool(pages=8, page_tokens=16, slots=3, pages_per_slot=8)
    pool.reserve(0, 17)
    assert pool.table[0, :2].tolist() == [0, 1]
    pool.reserve(1, 16)
    assert pool.table[1, 0] == 2
    pool.release(0)
    pool.reserve(2, 48)
    assert pool.table[2, :3].tolist() == [0, 1, 3]


def test_E_5_1_a_reservation_that_does_not_fit_changes_nothing() -> None:
    pool = PagePool(pages=4, page_tokens=16, slots=2, pages_per_slot=4)
    pool.reserve(0, 40)
    before = pool.table.copy()
    with pytest.raises(OutOfPages, match="32 tokens need 2 pages, 1 of 4 are free"):
        pool.reserve(1, 32)
    assert pool.free == 1
    assert (pool.table == before).all()
    pool.reserve(1, 16)
    assert pool.free == 0


def test_E_5_1_a_slot_that_holds_pages_cannot_reserve_again() -> None:
    pool = PagePool(pages=4, page_tokens=16, slots=2, pages_per_slot=4)
    pool.reserve(0, 16)
    with pytest.raises(ValueError, match="slot 0 already holds 1 pages"):
        pool.reserve(0, 16)


def test_one_request_may_own_the_whole_pool_but_not_more_than_its_table() -> None:
    pool = PagePool(pages=4, page_tokens=16, slots=2, pages_per_slot=3)
    with pytest.raises(OutOfPages, match="a slot has at most 3"):
        pool.reserve(0, 64)
    pool.reserve(0, 48)
    assert pool.in_use == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=40))
def test_E_5_1_no_page_is_held_twice_and_none_is_lost(operations: list[tuple[int, int]]) -> None:
    pool = PagePool(pages=12, page_tokens=16, slots=4, pages_per_slot=12)
    held: dict[int, int] = {}
    for slot, size in operations:
        if slot in held:
            pool.release(slot)
            del held[slot]
        else:
            try:
                pool.reserve(slot, size)
                held[slot] = pool.pages_for(size)
            except OutOfPages:
                assert pool.pages_for(size) > pool.free
        owned = [page for s, count in held.items() for page in pool.table[s, :count].tolist()]
        assert len(owned) == len(set(owned)) == pool.in_use
        assert pool.in_use + pool.free == 12
    for slot in list(held):
        pool.release(slot)
    assert pool.free == 12
