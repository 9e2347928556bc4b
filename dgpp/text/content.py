"""The content of a message: a string, or an array of parts that becomes one (spec/api.md §5.2, §5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.text.message_error import MessageError

_IMAGE_TYPES = ("image_url", "image", "input_image")
_IMAGES = "is not supported: images are not read here, and nothing is fetched"


@dataclass(frozen=True)
class Content:
    """What a message's content holds. None where it is null or absent."""

    content: str | tuple[Mapping[str, Any], ...] | None
    thinking: str | None = None  # the thinking parts of an assistant's content, one blank line between them


def parse_content(value: Any, role: str, at: str) -> Content:
    """The content of a message of this role; text parts are joined without a separator.

    Raises MessageError naming the part.
    """
    if value is None or isinstance(value, str):
        return Content(value)
    if not isinstance(value, list):
        raise MessageError(at, f"{at} must be a string or an array of parts")
    if role == "tool" and value and all(isinstance(part, dict) and "type" not in part for part in value):
        return Content(tuple(value))
    text: list[str] = []
    thinking: list[str] = []
    for index, part in enumerate(value):
        here = f"{at}[{index}]"
        if not isinstance(part, dict):
            raise MessageError(here, f"{here} must be an object with a type")
        if "prompt_cache_breakpoint" in part:
            param = f"{here}.prompt_cache_breakpoint"
            raise MessageError(param, f"{param} is not supported", "unsupported_parameter")
        kind = part.get("type")
        if kind == "text":
            text.append(_string(part, "text", here))
        elif kind == "thinking" and role == "assistant":
            thinking.append(_string(part, "thinking", here))
        elif kind == "refusal" and role == "assistant" and len(value) == 1:
            text.append(_string(part, "refusal", here))
        elif kind != "redacted_thinking" or role != "assistant":
            param = f"{here}.type"
            why = _IMAGES if kind in _IMAGE_TYPES else "is not supported here"
            raise MessageError(param, f"{param} {kind!r} {why}", "unsupported_content_type")
    return Content("".join(text), "\n\n".join(filter(None, thinking)) or None)


def _string(part: dict[str, Any], key: str, at: str) -> str:
    value = part.get(key)
    if not isinstance(value, str):
        raise MessageError(f"{at}.{key}", f"{at}.{key} must be a string")
    return value
