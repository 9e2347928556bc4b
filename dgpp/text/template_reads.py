"""Which variables a chat template looks at: what a request may tell it."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import meta, nodes


def variables_read(tree: nodes.Template) -> frozenset[str]:
    """The names that the template reads where it has not set them itself.

    jinja2's own answer includes every name that is set within a branch or a loop, whoever reads it; such a name counts
    only if it is read somewhere before.
    """
    own: set[str] = set()
    read: set[str] = set()
    for name in _names(tree):
        if name.ctx != "load":
            own.add(name.name)
        elif name.name not in own:
            read.add(name.name)
    return frozenset(read & meta.find_undeclared_variables(tree))


def _names(node: nodes.Node) -> Iterator[nodes.Name]:
    """All names below `node`, in the order in which they are evaluated."""
    if isinstance(node, nodes.Name):
        yield node
    children = list(node.iter_child_nodes())
    if isinstance(node, nodes.Assign):
        children = [node.node, node.target]
    elif isinstance(node, nodes.For):
        children.sort(key=lambda child: child is not node.iter)
    for child in children:
        yield from _names(child)
