"""References within one schema (case J4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from dgpp.text.constraints.schema_report import Place


class References:
    """Finds what a `$ref` of `root` points at. Nothing outside the schema is ever looked up."""

    def __init__(self, root: Any, at: Place) -> None:
        self._root = root
        self._at = at
        self._anchors: dict[str, tuple[Place, Any]] | None = None
        self._own = root["$id"].rstrip("#") if isinstance(root, dict) and isinstance(root.get("$id"), str) else ""

    def find(self, reference: Any, at: Place) -> tuple[Place, Any]:
        """The place and the schema that `reference`, written at `at`, points at.

        Raises GrammarError for one that is external or points at nothing.
        """
        if not isinstance(reference, str):
            raise at.refused("must be a string")
        fragment = reference.removeprefix(self._own) if self._own else reference
        if fragment and not fragment.startswith("#"):
            raise at.refused("points outside the schema; put what it means into $defs and write #/$defs/NAME")
        fragment = unquote(fragment.removeprefix("#"))
        if fragment and not fragment.startswith("/"):
            return self._anchor(fragment, at)
        steps = [step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:]]
        place, node = self._at, self._root
        for step in steps:
            if isinstance(node, dict) and step in node:
                place, node = place / step, node[step]
            elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step) < len(node):
                place, node = place / int(step), node[int(step)]
            else:
                raise at.refused(f"points at nothing: there is no {step!r} in {place.pointer}")
        return place, node

    def _anchor(self, name: str, at: Place) -> tuple[Place, Any]:
        if self._anchors is None:
            named = ((node.get("$anchor"), (place, node)) for place, node in _nodes(self._root, self._at))
            self._anchors = {anchor: found for anchor, found in named if isinstance(anchor, str)}
        if name in self._anchors:
            return self._anchors[name]
        raise at.refused(f"points at nothing: there is no $anchor {name!r}")


def _nodes(root: Any, at: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    pending = [(at, root)]
    while pending:
        place, node = pending.pop()
        if isinstance(node, dict):
            yield place, node
            pending += [(place / key, item) for key, item in node.items()]
        elif isinstance(node, list):
            pending += [(place / index, item) for index, item in enumerate(node)]
