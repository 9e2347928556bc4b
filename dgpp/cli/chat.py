"""`dgpp chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dgpp.cli.model_options import takes_model_options
from dgpp.cli.opening import open_for_command, text_side
from dgpp.cli.streaming import stream_text
from dgpp.engine.options import ModelOptions


@takes_model_options
def chat(
    model: Annotated[str | None, typer.Argument(help="Directory or hub id; the embedded model without one.")] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 is exact greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    kernels: Annotated[str | None, typer.Option(help="Kernel kind; the machine's own without it.")] = None,
    *,
    options: ModelOptions,
) -> None:
    """Reads a line, answers, and so on until the end of input."""
    from dgpp.engine.engine import LocalEngine
    from dgpp.engine.request import ContextLengthExceeded, Request, Sampling
    from dgpp.engine.settings import CoreSettings
    from dgpp.text.messages import parse_messages

    opened = open_for_command(model, CoreSettings(slots=1), kernels, options)
    text = text_side(opened)
    if text.template is None:
        raise typer.BadParameter(f"{opened.name} has no chat template; use `dgpp generate`")
    engine = LocalEngine(opened.core)
    history: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            break
        if not line.strip():
            continue
        history.append({"role": "user", "content": line})
        prompt = text.tokenizer.encode_segments(text.template.render(parse_messages(history)))
        request = Request(tuple(prompt), max_tokens, text.eos, sampling=Sampling(temperature=temperature, seed=seed))
        try:
            answer, _ = stream_text(engine, text, request, continues=False)
        except ContextLengthExceeded as refusal:
            typer.echo(f"{refusal}; the conversation starts anew", err=True)
            del history[1 if system else 0 :]
            continue
        print()
        history.append({"role": "assistant", "content": answer})
    engine.shutdown()
