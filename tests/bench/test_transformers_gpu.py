"""What `bench.decode` makes of what the transformers process prints."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from bench.decode import partner_rows
from bench.transformers_gpu import beside

PRINTED = {
    "engine": "transformers 5.17.0 bf16",
    "bytes": 4_000_000,
    "timings": [
        {"kind": "decode", "size": 1, "seconds": 0.5},
        {"kind": "decode", "size": 4, "seconds": 1.0},
        {"kind": "prefill", "size": 2048, "seconds": 2.0},
    ],
}


def answer(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> dict[str, Any]:
    """What the process is given, filled in once it is called; it ends with `fields`."""
    given: dict[str, Any] = {}

    def run(command: list[str], *, input: str, timeout: float, **_: Any) -> Any:
        given.update(json.loads(input), timeout=timeout, command=command)
        if "after" in fields:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, fields["returncode"], fields["stdout"], fields["stderr"])

    monkeypatch.setattr(subprocess, "run", run)
    return given


def test_rows_have_the_bytes_and_rates_of_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = "a warning\n" + json.dumps(PRINTED) + "\n"
    given = answer(monkeypatch, returncode=0, stdout=out, stderr="")
    found = beside({"hidden_size": 8}, 256, (1, 4), (2048,), 60)
    one, four, prompt = partner_rows("27b", found, 4.0)
    assert (given["config"], given["context"], given["streams"]) == ({"hidden_size": 8}, 256, [1, 4])
    assert (given["prefill"], given["timeout"]) == ([2048], 60)
    assert one["name"] == "27b, decode, 1 stream: transformers 5.17.0 bf16"
    assert (one["ms_per_step"], one["gbps"], one["tokens_per_second"], one["streams"]) == (500.0, 0.008, 2.0, 1)
    assert one["fraction"] == 0.002
    assert (four["name"].split(":")[0], four["tokens_per_second"]) == ("27b, decode, 4 streams", 4.0)
    assert (prompt["name"].split(":")[0], prompt["tokens_per_second"]) == ("27b, prefill, 2048 tokens", 1024.0)
    assert "ms_per_step" not in prompt


def test_a_process_that_fails_or_takes_too_long_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, returncode=1, stdout="", stderr="CUDA out of memory")
    with pytest.raises(RuntimeError, match=r"bench\.transformers_gpu: CUDA out of memory"):
        beside({}, 256, (1,), (), 60)
    answer(monkeypatch, after=60)
    with pytest.raises(RuntimeError, match=r"bench\.transformers_gpu: not done in 60 s"):
        beside({}, 256, (1,), (), 60)
