"""Tool calls: what a request declares, and the formats in which models write them."""

from dgpp.text.tools.declared import Tool, ToolChoice, parse_parallel, parse_tool_choice, parse_tools
from dgpp.text.tools.dialect import CallParser, Dialect, dialect_of

__all__ = [
    "CallParser",
    "Dialect",
    "Tool",
    "ToolChoice",
    "dialect_of",
    "parse_parallel",
    "parse_tool_choice",
    "parse_tools",
]
