"""Tools of a Messages request as those of a chat request."""

from __future__ import annotations

from typing import Any

from dgpp.serve.translation import Paths, array, invalid, mapping, text, unsupported

_CHOICES = {"auto": None, "any": "required", "none": "none"}
"""What chat says for each type: nothing for auto, which in this API needs no tools."""


def chat_tools(value: Any, paths: Paths) -> list[dict[str, Any]] | None:
    """The chat tools; those that this API knows by a type of their own are refused. Raises ApiError."""
    if value is None:
        return None
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(array(value, "tools")):
        at = f"tools[{index}]"
        kind = mapping(tool, at).get("type")
        if kind not in (None, "custom"):
            raise unsupported(
                f"{at}.type", f"{kind!r} is no tool that this server knows; declare it with an input_schema"
            )
        paths.add(f"tools[{index}].function", at)
        paths.add(f"tools[{index}].function.parameters", f"{at}.input_schema")
        function = {"name": tool.get("name"), "parameters": mapping(tool.get("input_schema"), f"{at}.input_schema")}
        function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
        tools.append({"type": "function", "function": function})
    return tools


def chat_tool_choice(value: Any, paths: Paths) -> dict[str, Any]:
    """The chat fields `tool_choice` and `parallel_tool_calls`. Raises ApiError."""
    if value is None:
        return {}
    kind = mapping(value, "tool_choice").get("type")
    single = value.get("disable_parallel_tool_use")
    if single is not None and not isinstance(single, bool):
        raise invalid("tool_choice.disable_parallel_tool_use", "must be true or false")
    fields: dict[str, Any] = {"parallel_tool_calls": False} if single else {}
    if kind == "tool":
        paths.add("tool_choice.function", "tool_choice")
        name = text(value.get("name"), "tool_choice.name")
        return {**fields, "tool_choice": {"type": "function", "function": {"name": name}}}
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise invalid("tool_choice.type", "must be auto, any, tool or none")
    return {**fields, "tool_choice": _CHOICES[kind]}
