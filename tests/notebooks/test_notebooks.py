"""Every notebook runs from a fresh kernel without an error, and is kept with its outputs, which are small."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 300
"""For one cell, on a busy machine."""
BYTES = 300_000


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_it_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert path.stat().st_size < BYTES, f"{path.name} is kept with large outputs"
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    fresh = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(
        fresh, timeout=SECONDS, kernel_name="python3", resources=where, coalesce_streams=True
    ).execute()
    for old, new in zip(code_cells(kept), code_cells(fresh), strict=True):
        assert old.execution_count, f"{path.name} is kept without having been run"
        assert [output.output_type for output in old.outputs] == [output.output_type for output in new.outputs]
        for verdict in ("True", "False"):
            assert printed(old).count(verdict) == printed(new).count(verdict)


PROOFS = {
    "01_a_model_from_the_inside": (
        "51 arrays, all equal bit for bit",
        "bit for bit: True (2048 logits)",
        "log-probabilities equal: True (240 numbers)",
        "sampled text equal: True",
    ),
    "03_hybrid_layers": (
        "state after the last token, bit for bit: True (4608 numbers)",
        *(f"layer {layer}: o of every token, bit for bit: True" for layer in range(3)),
        "the same blocks: True",
        "the first 11 (in a row: True)",
        "branches after layer 3, bit for bit: True",
        *(f"({cuts}) 111 arrays, all equal bit for bit" for cuts in ("2,", "1, 3, 14", "15, 16, 17")),
    ),
}


@pytest.mark.parametrize("name", PROOFS)
def test_a_notebook_is_kept_with_its_proof(name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    kept = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    said = "\n".join(map(printed, code_cells(kept)))
    assert "False" not in said
    for verdict in PROOFS[name]:
        assert verdict in said


def code_cells(notebook: object) -> list:  # type: ignore[type-arg]
    return [cell for cell in notebook.cells if cell.cell_type == "code"]  # type: ignore[attr-defined]


def printed(cell: object) -> str:
    """The text of a cell's outputs."""
    parts = []
    for output in cell.outputs:  # type: ignore[attr-defined]
        parts.append(output.get("text", ""))
        parts.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(parts)
