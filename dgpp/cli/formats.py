"""`dgpp formats`: the table of weight formats."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dgpp.formats import Format

EXAMPLE = (4096, 4096)
"""The shape [N, K] at which bytes per weight are given."""

SECTIONS = {
    "FP8Block": ("2", "2_1"),
    "FP8Channel": ("2_2",),
    "FP8Tensor": ("2_3",),
    "NVFP4": ("3", "4"),
    "CSFCoded": ("5",),
    "MXFP4": ("6",),
    "MXFP8": ("7",),
    "PackedInt": ("8_1",),
    "GPTQ": ("8_2",),
    "Int8Planes": ("9",),
    "NF4I8": ("10",),
    "Mixed346": ("11",),
    "EXL3": ("12",),
    "BF12": ("13",),
}
"""The sections of the format contract that a format's test vectors come from: tests are named test_F_<section>_*."""

TESTS = Path(__file__).resolve().parents[2] / "tests" / "formats"


def formats(
    check: Annotated[
        bool, typer.Option("--check", help="Run the vectors' tests; needs a checkout and pytest.")
    ] = False,
) -> None:
    """Prints every weight format by its tag: resident bytes per weight, the 16-bit types that hold its operand exactly,
    where it can be cut into slices, and how many tests of contract vectors there are for it in this checkout.

    With --check these tests are run, the column says how many passed, and the exit status is 1 when one failed.
    """
    from rich.console import Console
    from rich.table import Table

    from dgpp.cli.show import PIPE_WIDTH
    from dgpp.formats import FORMATS

    found = vector_tests(TESTS)
    if check and not found:
        raise typer.BadParameter(f"--check needs the tests of a checkout, which are not at {TESTS}")
    passed = passed_tests(TESTS, found) if check else None
    table = Table(show_edge=False)
    for name in ("format", "bytes/weight", "exact in", "scale group", "held as", "cut", "vectors"):
        table.add_column(name, justify="right" if name in ("bytes/weight", "scale group", "vectors") else "left")
    for tag, format in FORMATS.items():
        table.add_row(*_cells(tag, format, found, passed))
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(table, highlight=False)
    if passed is not None and len(passed) < sum(map(len, found.values())):
        raise typer.Exit(1)


def _cells(tag: str, format: Format, found: Mapping[str, set[str]], passed: set[str] | None) -> tuple[str, ...]:
    # A layout for the disk only takes the bytes of the form it is held in.
    from dgpp.formats import format_named

    try:
        size = f"{format_named(format.loads_as).bytes_per_weight(EXAMPLE):.6g}"
    except ValueError:
        size = ""
    names = {name for section in SECTIONS.get(type(format).__name__, ()) for name in found.get(section, ())}
    vectors = "" if not names else f"{len(names & passed)}/{len(names)}" if passed is not None else f"{len(names)}"
    held = "" if format.loads_as == tag else format.loads_as
    group = "" if format.group is None else str(format.group)
    return tag, size, ", ".join(format.exact_in), group, held, format.slice_rule, vectors


def vector_tests(directory: Path) -> dict[str, set[str]]:
    """The names of the tests of contract vectors by section; none where there are no tests."""
    found: dict[str, set[str]] = {}
    for path in sorted(directory.glob("test_*.py")):
        for match in re.finditer(r"^def (test_F_((?:\d+_)+)\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(match[2].rstrip("_"), set()).add(match[1])
    return found


def passed_tests(directory: Path, found: Mapping[str, set[str]]) -> set[str]:
    """Those of the tests that pass now; one with several cases passes when all of them do."""
    names = sorted({name for section in found.values() for name in section})
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-k", " or ".join(names), "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    results = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(test_\w+)", done.stdout, re.MULTILINE)
    if not results:
        raise typer.BadParameter(f"--check: pytest ran no test:\n{done.stdout}{done.stderr}")
    return {name for _, name in results} - {name for result, name in results if result != "PASSED"}
