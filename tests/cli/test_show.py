"""`dgpp show`: every tensor, its leaves, totals, and what is left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.table import Table

from dgpp.checkpoint.fixture import random_tensors, write_fixture
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.reader import INDEX, Checkpoint
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges
from dgpp.cli.audit import format_table
from dgpp.cli.main import main
from dgpp.cli.show import leaf_boundaries, tensor_table
from dgpp.models import FAMILIES


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_fixture(FAMILIES["llama"], "tiny", tmp_path / "tiny")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["show", *arguments])
    assert not caught.value.code
    return capsys.readouterr().out


def test_every_tensor_with_shape_format_bytes_and_leaves(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, str(tiny))
    checkpoint = Checkpoint.open(tiny)
    rows = {
        cells[1]: cells
        for cells in ([c.strip() for c in line.split("│")] for line in printed.splitlines())
        if cells[1:]
    }
    assert rows.keys() == checkpoint.tensors.keys()
    for name, (_, _, shape, format, nbytes, _) in rows.items():
        info = checkpoint.tensors[name].info
        assert (shape, format, nbytes) == (str(list(info.shape)), "bf16", f"{info.nbytes:,}")
    assert rows["model.layers.1.mlp.down_proj.weight"][0] == "layers.down_proj[1]"
    assert rows["model.layers.1.mlp.down_proj.weight"][5] == "mlp 0|40|80|120|160"
    assert rows["model.layers.1.self_attn.k_proj.weight"][5] == "kv_heads 0:16 0:16 16:32 16:32"
    assert rows["model.norm.weight"][5] == ""
    assert f"total: {len(rows)} tensors, {checkpoint.nbytes:,} bytes" in printed
    assert "in 2 files" in printed
    assert "unused" not in printed


def test_stacked_rows_add_up(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, str(tiny), "--stacked")
    assert "model.layers.{layer}.self_attn.q_proj.weight" in printed
    assert "3 × [64, 64]" in printed
    cells = [line.split("│") for line in printed.splitlines()]
    total = sum(int(row[4].replace(",", "")) for row in cells if len(row) == 6)
    assert total == Checkpoint.open(tiny).nbytes


def test_without_an_argument_it_is_the_embedded_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dgpp/embedded (llama)" in shown(capsys).replace("\\", "/")


def test_W7_unused_and_unlisted_tensors_are_shown(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    write(tiny / "mtp.safetensors", {"mtp.fc.weight": ("U8", np.zeros(3, np.uint8))})
    printed = shown(capsys, str(tiny))
    line = next(line for line in printed.splitlines() if "mtp.fc.weight" in line)
    assert [cell.strip() for cell in line.split("│")] == ["(unused)", "mtp.fc.weight", "[3]", "U8", "3", ""]
    assert "unused: 1 tensors, 3 bytes" in printed
    assert "not in the checkpoint's index: 1 tensors (mtp.fc.weight)" in printed


def test_long_names_are_not_cut_when_piped(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "…" not in shown(capsys, str(tiny))


SHARED = Leaves(0, ((0, 4), (0, 4), (4, 8), (4, 8)), partition=False)


@pytest.mark.parametrize(
    ("bands", "expected"),
    [
        ((), ""),
        ((Leaves(0, even_ranges(10)),), "heads 0|2|5|7|10"),
        ((Leaves(1, even_ranges(8)),), "embed 0|2|4|6|8"),
        ((SHARED,), "heads 0:4 0:4 4:8 4:8"),
        ((SHARED, Leaves(0, ((8, 9), (9, 10), (10, 11), (11, 12)))), "heads 0:4 0:4 4:8 4:8, 8|9|10|11|12"),
    ],
)
def test_leaf_boundaries(bands: tuple[Leaves, ...], expected: str) -> None:
    assert leaf_boundaries(bands, ("heads", "embed")) == expected


def test_bad_checkpoints_are_one_line_and_status_2(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(words: str, *arguments: str) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["show", *(arguments or [str(tiny)])])
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("dgpp: ")
        assert err.count("\n") == 1
        assert words in err

    refused("neither a directory nor in the hub cache", "no-such-org/no-such-model")
    index = json.loads((tiny / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (tiny / INDEX).write_text(json.dumps(index))
    refused("'model.extra.weight' is in model-00001-of-00002.safetensors, but no shard holds it")
    (tiny / INDEX).write_text("{")
    refused("not valid JSON")
    (tiny / INDEX).unlink()
    shard = tiny / "model-00001-of-00002.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    refused("truncated")
    shard.write_bytes((5 * 2**30).to_bytes(8, "little") + content[8:])
    refused("longer than the file")
    shard.write_bytes(content)
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps({**config, "hidden_size": 128}))
    refused("but config.json makes it")
    (tiny / "config.json").write_text(json.dumps({**config, "architectures": ["Exl3ForCausalLM"]}))
    refused("Exl3ForCausalLM")
    (tiny / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))
    refused("quant_method 'awq' is not supported; supported: fp8, modelopt, compressed-tensors, ")


def test_what_a_quantised_checkpoint_brings_along_is_shown_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_fixture(FAMILIES["llama"], "nvfp4-modelopt", tmp_path / "model")
    printed = shown(capsys, str(directory))
    assert "(scale of activations, which stay bf16) " in printed
    assert "model.layers.1.mlp.up_proj.input_scale" in printed
    assert "ignored: 10 tensors that no value depends on" in printed
    assert "note: K and V are kept in bf16: 4 k_scale and v_scale tensors are not used" in printed
    assert "bytes by format: bf16" in printed
    assert "nvfp4 " in printed
    stacked = shown(capsys, str(directory), "--stacked")
    assert "model.layers.{layer}.mlp.up_proj.weight_scale_2" in stacked
    rows = [[cell.strip() for cell in line.split("│")] for line in stacked.splitlines()]
    assert ["(scale of activations, which stay bf16)", "*.input_scale", "6 tensors", "F32", "24", ""] in rows


def cells(table: Table, count: int) -> list[tuple[object, ...]]:
    """The first cells of every row."""
    return list(zip(*(column.cells for column in table.columns[:count]), strict=True))


def test_experts_parts_and_what_is_held_otherwise(tmp_path: Path) -> None:
    tree: SpecTree = {
        "up": TensorSpec("l.{layer}.experts.{expert}.up", (2, 4, 1024), ("experts", "mlp", "embed"), numbers=(1,)),
        "table": TensorSpec("t.shard_{part}", (4, 16), ("ngrams", "embed"), "fp8_tensor", parts=2, whole="t"),
        "A_log": TensorSpec("l.{layer}.A_log", (3,), ("heads",), "f32_bare", numbers=(1,)),
        "q": TensorSpec("q", (4, 1024), ("heads", "embed"), resident="bf12"),
    }
    (tmp_path / "config.json").write_text("{}")
    write(tmp_path / "model.safetensors", random_tensors(tree, 0))
    inventory = take_inventory(tree, Checkpoint.open(tmp_path))
    table = tensor_table(inventory, tmp_path, "any")
    rows = cells(table, 6)
    assert ("up[1][0]", "l.1.experts.0.up.weight", "[4, 1024]", "bf16", "8,192", "") in rows
    assert ("table", "t.shard_1.weight", "[2, 16]", "fp8_tensor", "32", "") in rows
    assert ("q", "q.weight", "[4, 1024]", "bf16, held as bf12", "8,192", "") in rows
    stacked = tensor_table(inventory, tmp_path, "any", stacked=True)
    assert cells(stacked, 5) == [
        ("up", "l.{layer}.experts.{expert}.up.weight", "2 × [4, 1024]", "bf16", "16,384"),
        ("table", "t.shard_{part}.weight", "2 × [2, 16]", "fp8_tensor", "64"),
        ("table", "t.weight_scale", "[1]", "fp8_tensor", "2"),
        ("A_log", "l.{layer}.A_log", "1 × [3]", "f32_bare", "12"),
        ("q", "q.weight", "[4, 1024]", "bf16, held as bf12", "8,192"),
    ]
    assert sorted(cells(format_table(inventory), 3)) == [
        ("bf16", "2", "8,192"),
        ("bf16, held as bf12", "1", "4,096"),
        ("f32_bare", "1", "3"),
        ("fp8_tensor", "1", "64"),
    ]
