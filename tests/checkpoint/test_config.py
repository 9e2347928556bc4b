"""JSON files of a checkpoint, and the union of what they call the end of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgpp.checkpoint.config import eos_ids, read_json
from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint


def checkpoint(directory: Path, config: Any = None, generation: Any = None, **files: Any) -> Checkpoint:
    """A checkpoint of JSON files only."""
    names = {"tokenizer": "tokenizer.json", "tokenizer_config": "tokenizer_config.json"}
    for key, content in files.items():
        (directory / names[key]).write_text(json.dumps(content))
    paths = {names[key]: directory / names[key] for key in files}
    return Checkpoint(directory, config or {}, generation or {}, paths, (), {}, ())


def added(content: str, number: int) -> dict[str, Any]:
    return {"added_tokens": [{"id": number, "content": content}], "model": {"vocab": {"</s>": 7}}}


def test_W10_union_of_config_generation_config_and_tokenizer(tmp_path: Path) -> None:
    found = checkpoint(
        tmp_path,
        {"eos_token_id": 151645},
        {"eos_token_id": [151645, 151643]},
        tokenizer_config={"eos_token": "<|end|>"},
        tokenizer=added("<|end|>", 151650),
    )
    assert eos_ids(found) == {151645, 151643, 151650}


@pytest.mark.parametrize(
    ("tokenizer_config", "tokenizer", "expected"),
    [
        ({"eos_token": {"content": "<|end|>"}}, added("<|end|>", 5), {5}),
        ({"eos_token": "</s>"}, added("<|end|>", 5), {7}),
        ({"eos_token": "<|e|>", "added_tokens_decoder": {"9": {"content": "<|e|>"}}}, added("<|e|>", 5), {9}),
        ({"eos_token": None}, {}, set()),
        ({}, {}, set()),
    ],
)
def test_W10_the_tokenizers_own_end_token(tmp_path: Path, tokenizer_config: Any, tokenizer: Any, expected: Any) -> None:
    assert eos_ids(checkpoint(tmp_path, tokenizer_config=tokenizer_config, tokenizer=tokenizer)) == expected


def test_W10_a_multimodal_config_keeps_it_in_its_text_part(tmp_path: Path) -> None:
    assert eos_ids(checkpoint(tmp_path, {"text_config": {"eos_token_id": [3, 4]}})) == {3, 4}


def test_no_end_at_all_is_an_empty_set(tmp_path: Path) -> None:
    assert eos_ids(checkpoint(tmp_path, {"eos_token_id": None})) == frozenset()


@pytest.mark.parametrize("value", ["2", 2.0, True, -1, [2, None], {"id": 2}])
def test_a_wrong_id_names_file_and_field(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id must be"):
        eos_ids(checkpoint(tmp_path, {}, {"eos_token_id": value}))


@pytest.mark.parametrize("decoder", [None, [], {"x": {"content": "</s>"}}, {"3": "</s>"}])
def test_an_end_token_the_tokenizer_does_not_know(tmp_path: Path, decoder: Any) -> None:
    files = checkpoint(tmp_path, tokenizer_config={"eos_token": "</s>", "added_tokens_decoder": decoder}, tokenizer={})
    with pytest.raises(CheckpointError, match="eos_token '</s>' has no id"):
        eos_ids(files)


def test_the_embedded_models_ends() -> None:
    assert eos_ids(Checkpoint.open(embedded_path())) == {0, 2}


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe", b"[1]", b"3", b"[" * 100_000])
def test_broken_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: (not valid JSON|must hold a JSON object)"):
        read_json(tmp_path / "config.json")
