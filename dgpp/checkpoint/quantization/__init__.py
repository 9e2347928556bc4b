"""From a release's config and tensors to the weight format of every module.

One file for each dialect of `quantization_config`; `tags` has the one table of their names for formats, `observe` tells
formats by the tensors alone, and `table` joins the two. `resolve_tree` gives a family's tree the formats of a
checkpoint.
"""

from dgpp.checkpoint.quantization.dialects import METHODS
from dgpp.checkpoint.quantization.table import FormatTable, resolve_formats
from dgpp.checkpoint.quantization.tree import resolve_tree, with_formats

__all__ = ["METHODS", "FormatTable", "resolve_formats", "resolve_tree", "with_formats"]
