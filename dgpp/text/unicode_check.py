"""Refusing text that is not Unicode: JSON can spell unpaired surrogates, UTF-8 cannot."""

from __future__ import annotations

import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def surrogate_path(value: Any, path: str) -> str | None:
    """Where in a JSON value an unpaired surrogate is, as a path that begins with `path`; None when there is none.

    A key that holds one is reported by the path of its object. The depth of the value does not matter.
    """
    pending = [(value, path)]
    while pending:
        value, path = pending.pop()
        if isinstance(value, str):
            if _SURROGATE.search(value):
                return path
        elif isinstance(value, dict):
            if any(isinstance(key, str) and _SURROGATE.search(key) for key in value):
                return path
            pending += [(item, f"{path}.{key}" if path else str(key)) for key, item in reversed(value.items())]
        elif isinstance(value, list | tuple):
            pending += [(value[index], f"{path}[{index}]") for index in reversed(range(len(value)))]
    return None
