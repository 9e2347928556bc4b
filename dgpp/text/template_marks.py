"""Control marks put into a parsed chat template."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from dgpp.text.control_marks import ControlMarks


class MarkControl(NodeTransformer):
    """Marks the control tokens in the template's own text and string constants, lets comparisons see their spelling,
    and has loops and concatenations counted by the sandbox."""

    def __init__(self, marks: ControlMarks) -> None:
        self._marks = marks

    def visit_TemplateData(self, node: nodes.TemplateData, *args: Any, **kwargs: Any) -> nodes.Node:
        node.data = self._marks.mark(node.data)
        return node

    def visit_Const(self, node: nodes.Const, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node.value, str):
            node.value = self._marks.mark(node.value)
        return node

    def visit_Getitem(self, node: nodes.Getitem, *args: Any, **kwargs: Any) -> nodes.Node:
        node.node = self.visit(node.node)
        if not isinstance(node.arg, nodes.Const):  # a constant key is a name, not text
            node.arg = self.visit(node.arg)
        return node

    def visit_Compare(self, node: nodes.Compare, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "dgpp_plain")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "dgpp_plain")
        return node

    def visit_Concat(self, node: nodes.Concat, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "dgpp_sized")

    def visit_For(self, node: nodes.For, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        step = _filtered(nodes.Const(None, lineno=node.lineno), "dgpp_step")
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
