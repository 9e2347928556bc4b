"""The transformers side of `bench.decode`: the same config with random bfloat16 weights, in a process of its own.

    python -m bench.transformers_gpu < work.json

`work.json` has "config" (a text config), "context", "steps", "streams" and "prefill". Prints one JSON object on its
last line: the bytes of the weights that a step reads, what ran, and the timings as `bench.transformers_cpu` makes them:
the library's own modules and cache, eager, with the kernels it finds installed.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bench.partners import printed

WARM = 3  # steps, and prompts, before the clock runs
PROMPTS = 3


def beside(
    config: dict[str, Any], context: int, streams: Sequence[int], prefill: Sequence[int], seconds: float
) -> dict[str, Any]:
    """What the process prints: "engine", "bytes" and "timings". Raises PartnerError when it fails or takes longer.

    To be called before this process takes the accelerator's memory.
    """
    work = {"config": config, "context": context, "steps": 16, "streams": list(streams), "prefill": list(prefill)}
    found: dict[str, Any] = printed("bench.transformers_gpu", (), seconds, json.dumps(work))
    return found


def _timings(model: Any, work: dict[str, Any], device: Any) -> Iterator[dict[str, Any]]:
    import torch

    from bench.transformers_cpu import seconds_of_prompt, seconds_of_step

    def ids(streams: int, length: int) -> Any:
        return torch.randint(0, model.config.vocab_size, (streams, length), device=device)

    for streams in work["streams"]:
        seconds_of_step(model, ids(streams, work["context"]), WARM)
        took = seconds_of_step(model, ids(streams, work["context"]), work["steps"])
        yield {"kind": "decode", "size": streams, "seconds": took}
    for tokens in work["prefill"]:
        times = [seconds_of_prompt(model, ids(1, tokens)) for _ in range(WARM + PROMPTS)]
        yield {"kind": "prefill", "size": tokens, "seconds": statistics.median(times[WARM:])}


def main() -> None:
    """The command line."""
    import torch
    import transformers

    work = json.load(sys.stdin)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.bfloat16)
    config = transformers.AutoConfig.for_model("qwen3_5_text", **work["config"])
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    table = model.get_input_embeddings().weight
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters() if p is not table)
    engine = f"transformers {transformers.__version__} bf16"
    if importlib.util.find_spec("fla") is None:
        engine += " without flash-linear-attention"
    print(json.dumps({"engine": engine, "bytes": nbytes, "timings": list(_timings(model, work, device))}))


if __name__ == "__main__":
    main()
