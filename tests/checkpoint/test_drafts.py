"""Draft layers that a config promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgpp.checkpoint.drafts import check_drafts
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_fixture
from dgpp.checkpoint.reader import Checkpoint
from dgpp.engine.open import open_model
from dgpp.models import FAMILIES


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(write_fixture(FAMILIES["llama"], "tiny-tied", tmp_path / "model"))


def promising(checkpoint: Checkpoint, extra: tuple[str, ...] = (), **fields: Any) -> Checkpoint:
    some = next(iter(checkpoint.tensors.values()))
    tensors = checkpoint.tensors | dict.fromkeys(extra, some)
    return replace(checkpoint, config=checkpoint.config | fields, tensors=tensors)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_nextn_predict_layers": 1},
        {"mtp_num_hidden_layers": 2},
        {"text_config": {"num_nextn_predict_layers": 1, "num_hidden_layers": 3}},
    ],
)
def test_W8_promised_draft_layers_without_tensors_are_refused_with_the_remedy(
    checkpoint: Checkpoint, fields: dict[str, Any]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        check_drafts(promising(checkpoint, **fields))
    message = str(caught.value)
    assert "but no shard holds a draft layer (mtp.* or model.layers.3.*)" in message
    assert "Download the release's file with them, or set" in message
    assert "to 0 to run without drafts" in message
    for name in ("mtp.fc.weight", "model.layers.3.eh_proj.weight"):
        check_drafts(promising(checkpoint, (name,), **fields))


def test_W8_nothing_promised(checkpoint: Checkpoint) -> None:
    check_drafts(checkpoint)
    check_drafts(promising(checkpoint, num_nextn_predict_layers=0, mtp_num_hidden_layers=None))


def test_W8_refused_when_the_model_is_opened(tmp_path: Path) -> None:
    directory = write_fixture(FAMILIES["llama"], "tiny-tied", tmp_path / "model")
    config = (directory / "config.json").read_text()
    (directory / "config.json").write_text(config.replace("{", '{"num_nextn_predict_layers": 1,', 1))
    with pytest.raises(CheckpointError, match="num_nextn_predict_layers is 1, but no shard holds a draft layer"):
        open_model(str(directory))
