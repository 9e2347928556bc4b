"""Other engines on the same weights and threads, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.work import Timing, Work

TRANSFORMERS = Path(__file__).with_name("transformers_cpu.py")


class PartnerError(RuntimeError):
    """A partner's process that failed; the message holds its last words."""


def transformers(python: Path, model: Path, dtype: str, work: Work) -> list[Timing]:
    """The timings of transformers with the weights held in `dtype`. Raises PartnerError."""
    request = json.loads(work.to_json())
    request["batches"] = [(streams, work.prompts(streams)) for streams in work.streams]
    # Without the script's folder on the path, where `kernels` is not the package that transformers looks for.
    output = _run([str(python), "-P", str(TRANSFORMERS), str(model), dtype], json.dumps(request))
    entries = json.loads(output.splitlines()[-1])
    return [Timing.of_json(f"transformers {dtype}", entry) for entry in entries]


def llama_cpp(batched_bench: Path, gguf: Path, work: Work) -> list[Timing]:
    """The timings of llama.cpp's `llama-batched-bench`. Raises PartnerError."""
    timings = []
    for _ in range(work.repeats):
        timings += _llama_cpp_cases(batched_bench, gguf, work, (work.prompt,), work.steps, work.streams)
        timings += _llama_cpp_cases(batched_bench, gguf, work, work.prefill, 1, (1,))
    return timings


def _llama_cpp_cases(
    batched_bench: Path, gguf: Path, work: Work, prompts: tuple[int, ...], steps: int, streams: tuple[int, ...]
) -> list[Timing]:
    context = max(streams) * (max(prompts) + steps)
    lists = {"-npp": prompts, "-ntg": (steps,), "-npl": streams}
    command = [str(batched_bench), "-m", str(gguf), "-t", str(work.threads), "-c", str(context)]
    command += ["--output-format", "jsonl"]
    for option, values in lists.items():
        command += [option, ",".join(map(str, values))]
    return parse_batched_bench(_run(command), prefill=steps == 1)


def parse_batched_bench(output: str, *, prefill: bool) -> list[Timing]:
    """The timings in the JSON lines that `llama-batched-bench` prints among others: prompts, or decode steps."""
    timings = []
    for line in output.splitlines():
        if line.startswith("{"):
            case = json.loads(line)
            if prefill:
                timings.append(Timing("llama.cpp", "prefill", case["pp"], (case["t_pp"],)))
            else:
                timings.append(Timing("llama.cpp", "decode", case["pl"], (case["t_tg"] / case["tg"],)))
    if not timings:
        raise PartnerError(f"llama-batched-bench printed no case:\n{output[-2000:]}")
    return timings


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise PartnerError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def printed(module: str, arguments: Sequence[str], seconds: float, text: str = "") -> Any:
    """What a module of ours, run by this interpreter in a process of its own with `text` as its input, prints as JSON
    on its last line. Raises PartnerError when it fails or takes longer than `seconds`."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise PartnerError(f"{module}: not done in {seconds:g} s") from None
    if done.returncode:
        raise PartnerError(f"{module}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])
