"""Requests that are prepared at the same time (spec/api.md §6.9)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dgpp.serve.errors import ApiError
from dgpp.serve.preparing import Preparing
from tests.serve.support import Bench, chat, eventually


def test_api_6_9_so_many_work_so_many_wait_and_the_next_is_refused() -> None:
    places = Preparing(at_once=2, waiting=1)
    inside, most, go = [0], [0], threading.Event()
    lock = threading.Lock()

    def work() -> None:
        with places.place():
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            go.wait()
            with lock:
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: inside[0] == 2 and places._inside == 3)
    with pytest.raises(ApiError) as refused, places.place():
        raise AssertionError
    assert refused.value.kind.code == "overloaded"
    go.set()
    for thread in threads:
        thread.join()
    assert most[0] == 2
    with places.place():  # a place is free again, whatever happened
        pass


def test_a_prompt_that_cannot_be_made_leaves_its_place(bench: Callable[..., Bench]) -> None:
    made = bench("ok")
    made.service._preparing = Preparing(at_once=1, waiting=0)
    refuse = chat(messages=[{"role": "user", "content": "refuse"}])
    for _ in range(2):
        assert made.client.post("/v1/chat/completions", json=refuse).status_code == 400
    assert made.client.post("/v1/chat/completions", json=chat()).status_code == 200
