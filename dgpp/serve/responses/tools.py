"""Tools of a Responses request as those of a chat request: the same declarations without an inner object.

Tools may come in groups, which chat has not: there a tool of a group has the group's name before its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.serve.translation import Paths, array, invalid, mapping, text, unsupported

KINDS = ("function", "custom")
NAMESPACE = "namespace"
"""The type of a group of tools."""
UNASKED = "web_search"
"""A tool of OpenAI's servers that agents declare to every server, wanted or not. The model is not told of it, and the
answer does not list it; naming it in tool_choice is an error as with every tool that a server would have to run."""


def chat_name(tool: Mapping[str, Any], at: str) -> Any:
    """The name that chat has for a tool or a call of it: names of a namespace begin with it. Raises ApiError."""
    namespace, name = tool.get("namespace"), tool.get("name")
    if namespace is None or not isinstance(name, str):
        return name
    return f"{text(namespace, f'{at}.namespace')}__{name}"


def called_names(value: Any) -> dict[str, dict[str, str]]:
    """What an answer says instead of each of chat's names that stands for a tool in a namespace: its name and the
    namespace. `value` are the tools of a request that has been accepted."""
    inner = (
        (space["name"], tool["name"]) for space in value or () if space["type"] == NAMESPACE for tool in space["tools"]
    )
    return {
        chat_name({"namespace": space, "name": name}, ""): {"name": name, "namespace": space} for space, name in inner
    }


def chat_tools(value: Any, paths: Paths) -> list[dict[str, Any]] | None:
    """The chat tools. Raises ApiError for tools that a server would have to run itself, except UNASKED."""
    if value is None:
        return None
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(array(value, "tools")):
        at = f"tools[{index}]"
        if mapping(tool, at).get("type") == UNASKED:
            continue
        if tool.get("type") != NAMESPACE:
            _add(tool, at, tools, paths)
            continue
        space, about = text(tool.get("name"), f"{at}.name"), tool.get("description")
        for place, inner in enumerate(array(tool.get("tools"), f"{at}.tools")):
            here = f"{at}.tools[{place}]"
            described = (about, mapping(inner, here).get("description"))
            if any(part is not None and not isinstance(part, str) for part in described):
                raise invalid(f"{at}.description", "and those of its tools must be strings")
            told = "\n".join(filter(None, described))
            _add({**inner, "namespace": space, "description": told}, here, tools, paths)
    return tools


def _add(tool: dict[str, Any], at: str, tools: list[dict[str, Any]], paths: Paths) -> None:
    """Adds the chat tool for one that `at` stands for."""
    kind = tool.get("type")
    if kind not in KINDS:
        raise unsupported(
            f"{at}.type", f"{kind!r} is no tool that this server runs; leave it out, or declare a function"
        )
    path = f"tools[{len(tools)}]"
    paths.add(path, at)
    paths.add(f"{path}.{kind}", at)
    inner = {key: item for key, item in tool.items() if key not in ("type", "namespace")}
    inner["name"] = chat_name(tool, at)
    grammar = inner.get("format")
    if kind == "custom" and isinstance(grammar, dict) and grammar.get("type") == "grammar":
        paths.add(f"{path}.custom.format.grammar", f"{at}.format")
        inner["format"] = {"type": "grammar", "grammar": {k: v for k, v in grammar.items() if k != "type"}}
    tools.append({"type": kind, kind: inner})


def chat_tool_choice(value: Any, paths: Paths) -> Any:
    """The chat tool_choice; none for auto, which in this API needs no tools."""
    if not isinstance(value, dict):
        return None if value == "auto" else value
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
        raise unsupported("tool_choice.type", f"{kind!r} is no tool that this server runs")
    return _named(value, "tool_choice", paths)


def _named(value: Any, at: str, paths: Paths) -> Any:
    """A reference to a tool."""
    if not isinstance(value, dict) or value.get("type") not in KINDS:
        return value
    kind = value["type"]
    paths.add(f"{at}.{kind}", paths.sent(at))
    return {"type": kind, kind: {"name": chat_name(value, paths.sent(at))}}
