"""How much to think, in a chat template's own words (spec/api.md §5.4).

Requests say it with one of seven words; a template compares its variable `reasoning_effort` with those that it knows.
Each word of a request becomes the next known one upwards, or the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jinja2 import nodes

VARIABLE = "reasoning_effort"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The words for how much a model should think, upwards."""
POSITIVE = EFFORTS[1:]


def efforts_known(tree: nodes.Template) -> frozenset[str]:
    """The words that the template compares `reasoning_effort`, or a variable set from it, with."""
    about = {VARIABLE}
    for assigned in tree.find_all(nodes.Assign):
        if isinstance(assigned.target, nodes.Name) and _names(assigned.node) & about:
            about.add(assigned.target.name)
    return frozenset(
        text
        for node in tree.find_all((nodes.Compare, nodes.Getitem))
        if _names(node) & about
        for text in _texts(node)
        if text in EFFORTS
    )


def effort_values(known: frozenset[str]) -> Mapping[str, str]:
    """The value of `reasoning_effort` for each positive word of a request; the word itself when none is known.

    A template that tells only low and high from the rest has its greatest effort where neither is given: there "max"
    stands above high.
    """
    scale = set(known) & set(POSITIVE)
    if not scale:
        return {word: word for word in POSITIVE}
    if "high" in scale and not scale & {"medium", "xhigh", "max"}:
        scale.add("max")
    ordered = [word for word in POSITIVE if word in scale]
    return {
        word: next((at for at in POSITIVE[place:] if at in scale), ordered[-1]) for place, word in enumerate(POSITIVE)
    }


def _names(node: nodes.Node) -> set[str]:
    return {name.name for name in _all(node) if isinstance(name, nodes.Name)}


def _texts(node: nodes.Node) -> Iterator[str]:
    for found in _all(node):
        if isinstance(found, nodes.Const) and isinstance(found.value, str):
            yield found.value


def _all(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    yield from node.find_all(nodes.Node)
