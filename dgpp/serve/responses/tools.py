"""Tools of a Responses request as those of a chat request: the same declarations without an inner object."""

from __future__ import annotations

from typing import Any

from dgpp.serve.translation import Paths, array, mapping, unsupported

KINDS = ("function", "custom")


def chat_tools(value: Any, paths: Paths) -> list[dict[str, Any]] | None:
    """The chat tools. Raises ApiError for tools that a server would have to run itself."""
    if value is None:
        return None
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(array(value, "tools")):
        at = f"tools[{index}]"
        kind = mapping(tool, at).get("type")
        if kind not in KINDS:
            raise unsupported(
                f"{at}.type", f"{kind!r} is no tool that this server has; declare functions or custom tools"
            )
        paths.add(f"{at}.{kind}", at)
        inner = {key: item for key, item in tool.items() if key != "type"}
        grammar = inner.get("format")
        if kind == "custom" and isinstance(grammar, dict) and grammar.get("type") == "grammar":
            paths.add(f"{at}.custom.format.grammar", f"{at}.format")
            inner["format"] = {"type": "grammar", "grammar": {k: v for k, v in grammar.items() if k != "type"}}
        tools.append({"type": kind, kind: inner})
    return tools


def chat_tool_choice(value: Any, paths: Paths) -> Any:
    """The chat tool_choice."""
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind == "allowed_tools":
        paths.add("tool_choice.allowed_tools", "tool_choice")
        allowed = {key: item for key, item in value.items() if key != "type"}
        if isinstance(allowed.get("tools"), list):
            tools = enumerate(allowed["tools"])
            allowed["tools"] = [
                _named(tool, f"tool_choice.allowed_tools.tools[{index}]", paths) for index, tool in tools
            ]
        return {"type": kind, kind: allowed}
    if kind not in KINDS:
        raise unsupported("tool_choice.type", f"{kind!r} is no tool that this server has")
    return _named(value, "tool_choice", paths)


def _named(value: Any, at: str, paths: Paths) -> Any:
    """A reference to a tool."""
    if not isinstance(value, dict) or value.get("type") not in KINDS:
        return value
    kind = value["type"]
    paths.add(f"{at}.{kind}", paths.sent(at))
    return {"type": kind, kind: {key: item for key, item in value.items() if key != "type"}}
