"""`dgpp serve`: an OpenAI-compatible server over one model."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from dgpp.cli.http_options import takes_http_options
from dgpp.cli.model_options import takes_model_options
from dgpp.cli.opening import allow_virtual_devices, open_for_command, text_side
from dgpp.engine.options import ModelOptions
from dgpp.serve.settings import Settings

logger = logging.getLogger(__name__)


@takes_http_options
@takes_model_options
def serve(
    model: Annotated[str | None, typer.Argument(help="Directory or hub id; the embedded model without one.")] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name the model is served under; may be given several times.")
    ] = None,
    max_concurrency: Annotated[int, typer.Option(min=1, max=16, help="Requests that run at once.")] = 8,
    kv_capacity: Annotated[int, typer.Option(min=16, help="Tokens of the shared K/V pool.")] = 8192,
    page_tokens: Annotated[int, typer.Option(help="Tokens of a K/V page; a setting of the numerics.")] = 64,
    queue_limit: Annotated[int, typer.Option(min=0, help="Requests that may wait; 0: no limit.")] = 64,
    prefill_budget_tokens: Annotated[
        int, typer.Option(min=1, help="Prompt tokens a step may read while other requests decode.")
    ] = 240,
    temperature: Annotated[float | None, typer.Option(help="Default where a request has none.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Default where a request has none.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Default where a request has none.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Default where a request has none.")] = None,
    default_chat_template_kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help="Keys for the chat template where a request has none.")
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option(metavar="FILE", help="A chat template in place of the model's own.")
    ] = None,
    world: Annotated[int, typer.Option(help="Devices of this process to slice the model over: 1, 2 or 4.")] = 1,
    kernels: Annotated[str | None, typer.Option(help="Kernel kind; the machine's own without it.")] = None,
    digests: Annotated[
        bool, typer.Option(help="Read all files once more, beside serving, for their SHA-256 in /v1/models/{id}.")
    ] = True,
    *,
    settings: Settings,
    options: ModelOptions,
) -> None:
    """Serves until SIGTERM or SIGINT."""
    from dgpp.serve.prompt import Prompts
    from dgpp.serve.requests.decoding import sampling_defaults
    from dgpp.serve.requests.thinking import default_template_kwargs

    logging.basicConfig(format="dgpp: %(message)s")
    logging.getLogger("dgpp").setLevel(logging.INFO)
    allow_virtual_devices(world)

    from dgpp.checkpoint.digests import BackgroundDigests
    from dgpp.engine.engine import LocalEngine
    from dgpp.engine.settings import CoreSettings
    from dgpp.serve.server import HttpServer
    from dgpp.serve.service import Service

    core_settings = CoreSettings(slots=max_concurrency, pool_tokens=kv_capacity, page_tokens=page_tokens, world=world)
    opened = open_for_command(model, core_settings, kernels, options)
    text = text_side(opened, chat_template)
    operator = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p}
    try:
        defaults = sampling_defaults(opened.checkpoint.generation_config, operator)
        controls = Prompts(text.tokenizer, text.template).controls
        template_defaults = default_template_kwargs(default_chat_template_kwargs, controls)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    engine = LocalEngine(opened.core, queue_limit=queue_limit, prefill_budget=prefill_budget_tokens)
    background = BackgroundDigests(opened.checkpoint.directory) if digests else None
    names = tuple(served_model_name or ["dgpp-embedded" if model is None else model])
    try:
        service = Service(
            engine,
            text.tokenizer,
            text.template,
            names=names,
            eos=text.eos,
            settings=settings,
            sampling_defaults=defaults,
            template_defaults=template_defaults,
            rope_scaling=opened.config.rope.ramp(),
            digests=None if background is None else background.report,
        )
        server = HttpServer(service, settings)
    except ValueError as error:  # a directory for files that cannot be used
        engine.shutdown()
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        engine.shutdown()
        where = f"{settings.host}:{settings.port}"
        raise typer.BadParameter(f"cannot listen on {where}: {error.strerror or error}") from None
    info = engine.info
    what = f"{opened.family.name}, kernels {opened.core.kernels.name}, world {world}"
    room = f"context {info.context_limit} tokens, {info.max_concurrency} at once"
    # Through the log, whose lines no other thread can cut into.
    logger.info("serving %s (%s, %s) at %s/v1", ", ".join(names), what, room, server.url)
    if text.template is not None and service.served.dialect is None:
        logger.info("the chat template shows no tool calls that are known here: requests with tools are refused")
    service.prepare()
    server.run()
    if background is not None:
        background.close()
