"""Commands that get one parameter of their function from a whole group of flags."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def takes_group(
    command: Callable[..., None],
    parameter: str,
    flags: Sequence[inspect.Parameter],
    make: Callable[[Mapping[str, Any]], Any],
) -> Callable[..., None]:
    """`command` with `flags` in the place of its parameter `parameter`, which `make` builds from their values."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != parameter]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {flag.name: arguments.pop(flag.name) for flag in flags}
        command(**arguments, **{parameter: make(given)})

    parameters = sorted([*own, *flags], key=lambda each: each.kind)
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
