"""Benchmark records as Markdown tables, and the units that a figure's name may end in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

BEGIN, END = "<!-- records:begin -->", "<!-- records:end -->"

UNITS: dict[str, str] = {
    "seconds": "s",
    "bytes": "bytes",
    "gbps": "GB/s",
    "fraction": "of bandwidth",
    "tokens_per_second": "tokens/s",
    "requests_per_second": "requests/s",
    "ratio": "×",
    "percent": "%",
    "bits": "bits",
    "nats": "nats",
    "perplexity": "perplexity",
    "tokens": "tokens",
    "rows": "rows",
    "streams": "streams",
    "threads": "threads",
    "repeats": "repeats",
    "count": "count",
    "ms_per_step": "ms/step",
    "bytes_per_cycle": "bytes/cycle",
}
"""The units a figure's name may end in, and how a table's head shows them. GB/s is 1e9 bytes a second."""


class RecordError(ValueError):
    """A record that cannot be written or rendered; the message names the benchmark, row and figure."""


def unit_of(figure: str) -> str | None:
    """The unit a figure's name ends in, the longest that fits, or None."""
    units = [unit for unit in UNITS if figure == unit or figure.endswith(f"_{unit}")]
    return max(units, key=len, default=None)


def render(records: Iterable[Mapping[str, Any]], most: int | None = None) -> str:
    """The records as Markdown: a table each, with its settings, versions and revision below. Of a record with more than
    `most` rows the first so many are shown, and how many it has."""
    return "\n".join(_render_record(record, most) for record in records)


def _render_record(record: Mapping[str, Any], most: int | None) -> str:
    rows = record["rows"][:most]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {column for column in columns if any(not isinstance(row.get(column, ""), str) for row in rows)}
    lines = [f"**{record['benchmark']}** on {record['device']}", ""]
    lines.append("| " + " | ".join(_head(column, column in numeric) for column in columns) + " |")
    lines.append("|" + "|".join("---:" if column in numeric else "---" for column in columns) + "|")
    for row in rows:
        lines.append("| " + " | ".join(_cell(column, row.get(column)) for column in columns) + " |")
    settings = [f"the first {len(rows)} of {len(record['rows'])} rows"] if len(rows) < len(record["rows"]) else []
    settings += [f"{key} {value}" for key, value in record["extra"].items()]
    tools = [f"{name} {version}" for name, version in record["versions"].items()]
    code = [f"revision {record['revision']}"] if record["revision"] else []
    return "\n".join([*lines, "", f"<sub>{'; '.join([*settings, *tools, *code])}</sub>", ""])


def _head(column: str, numeric: bool) -> str:
    """ "first_token_seconds" -> "first token (s)"; a bare unit is its own head."""
    unit = unit_of(column) if numeric else None
    if unit is None:
        return column.replace("_", " ")
    prefix = column.removesuffix(unit).rstrip("_").replace("_", " ")
    return f"{prefix} ({UNITS[unit]})" if prefix else UNITS[unit]


def _cell(column: str, value: str | int | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("|", "\\|")
    unit = unit_of(column)
    if unit == "bytes":
        return f"{value / 1e9:,.3f} G" if value >= 1e9 else f"{value / 1e6:,.3f} M" if value >= 1e6 else f"{value:,}"
    if unit == "fraction":
        return f"{100 * value:.1f} %"
    if isinstance(value, int):
        return f"{value:,}"
    digits = 3 if value == 0 else max(0, 3 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def insert(text: str, rendered: str) -> str:
    """`text` with everything between its two marker lines replaced by `rendered`."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise RecordError(f"the file must have one {BEGIN} and after it one {END}")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{rendered}\n{END}{rest.split(END)[1]}"
