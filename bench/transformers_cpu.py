"""The transformers side of `bench.decode_cpu`, run with an interpreter that has torch and transformers.

    PYTHON bench/transformers_cpu.py MODEL DTYPE < work.json

Prints the timings as JSON on the last line. The loop is the plainest fast one: a batch of equal-length prompts, the
library's own cache, greedy choice, no `generate` around it, logits for the last position only.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def prefill(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """(next tokens [B, 1], cache) after a batch of prompts [B, T]."""
    output = model(ids, use_cache=True, logits_to_keep=1)
    return output.logits[:, -1].argmax(-1, keepdim=True), output.past_key_values


def seconds_of_prompt(model: Any, ids: torch.Tensor) -> float:
    """Seconds from a prompt [1, T] to its first token."""
    started = time.perf_counter()
    prefill(model, ids)[0].tolist()
    return time.perf_counter() - started


def seconds_of_step(model: Any, ids: torch.Tensor, steps: int) -> float:
    """Mean seconds of `steps` decode steps after prompts [B, T]."""
    token, cache = prefill(model, ids)
    started = time.perf_counter()
    for _ in range(steps):
        output = model(token, past_key_values=cache, use_cache=True)
        token, cache = output.logits[:, -1].argmax(-1, keepdim=True), output.past_key_values
        token.tolist()  # as a server must see every token
    return (time.perf_counter() - started) / steps


def main() -> None:
    """The command line."""
    directory, dtype = sys.argv[1:]
    work = json.load(sys.stdin)
    torch.set_num_threads(work["threads"])
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype)).eval()
    tokens, length = work["tokens"], work["prompt"]
    seconds_of_step(model, torch.tensor([tokens[:length]]), 2)  # warm up
    found = []
    for streams, prompts in work["batches"]:
        ids = torch.tensor(prompts)
        times = [seconds_of_step(model, ids, work["steps"]) for _ in range(work["repeats"])]
        found.append({"kind": "decode", "size": streams, "seconds": times})
    for size in work["prefill"]:
        times = [seconds_of_prompt(model, torch.tensor([tokens[:size]])) for _ in range(work["repeats"])]
        found.append({"kind": "prefill", "size": size, "seconds": times})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
