"""`dgpp generate`: continues one prompt and prints the text as it comes."""

from __future__ import annotations

from typing import Annotated

import typer

from dgpp.cli.model_options import takes_model_options
from dgpp.cli.opening import open_for_command, text_side
from dgpp.cli.streaming import stream_text
from dgpp.engine.options import ModelOptions


@takes_model_options
def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue, as it is, without a chat template.")],
    model: Annotated[str | None, typer.Option(help="Directory or hub id; the embedded model without one.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 is exact greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus of this mass.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Only the k most likely; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text that ends the answer; may be given several times.")
    ] = None,
    kernels: Annotated[str | None, typer.Option(help="Kernel kind; the machine's own without it.")] = None,
    *,
    options: ModelOptions,
) -> None:
    """Prints the continuation, then the reason why it ended on stderr."""
    from dgpp.engine.engine import LocalEngine
    from dgpp.engine.request import Request, Sampling
    from dgpp.engine.settings import CoreSettings

    opened = open_for_command(model, CoreSettings(slots=1), kernels, options)
    text = text_side(opened)
    tokens = text.tokenizer.encode(prompt, prefix=True)
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    request = Request(tuple(tokens), max_tokens, text.eos, sampling=sampling)
    engine = LocalEngine(opened.core)
    _, reason = stream_text(engine, text, request, tuple(stop or ()), continues=True)
    engine.shutdown()
    typer.echo(f"\n[{reason}]", err=True)
