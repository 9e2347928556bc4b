"""Printing an answer while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgpp.cli.opening import TextSide
    from dgpp.engine.request import Engine, Request


def stream_text(
    engine: Engine, text: TextSide, request: Request, stop: Sequence[str] = (), *, continues: bool
) -> tuple[str, str]:
    """(the answer, why it ended), after printing the answer to stdout as it comes. Ctrl-C cancels the request.

    `continues` says that the answer carries on the text of the prompt. Raises RequestRefused, and RuntimeError when
    the engine fails.
    """
    from dgpp.engine.request import FailEvent, TokenEvent
    from dgpp.text.events import Event, Finished, StopHit, TextDelta
    from dgpp.text.pipeline import Pipeline

    pipeline = Pipeline(text.tokenizer, eos=text.eos, stop=tuple(stop), continues=continues)
    (handle,) = engine.submit(request)
    answer: list[str] = []
    reason = "cancelled"

    def show(events: Sequence[Event]) -> None:
        nonlocal reason
        for event in events:
            match event:
                case TextDelta():
                    answer.append(event.text)
                    sys.stdout.write(event.text)
                    sys.stdout.flush()
                case StopHit():
                    handle.stop()
                case Finished():
                    reason = event.reason

    try:
        for event in handle.events():
            if isinstance(event, TokenEvent):
                show(pipeline.feed(event.token))
            elif isinstance(event, FailEvent):
                raise RuntimeError(event.message)
            elif event is not None:
                show(pipeline.finish(event.reason))
    except KeyboardInterrupt:
        handle.cancel()
    return "".join(answer), reason
