from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgpp.text.eos import eos_ids
from dgpp.text.tokenizer import TokenizerError

from . import small


def write(path: Path, config: Any = None, generation: Any = None) -> Path:
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        if value is not None:
            (path / name).write_text(json.dumps(value))
    return path


def test_W10_the_stop_set_is_the_union_of_all_sources(tmp_path: Path) -> None:
    tokenizer = small.byte_level()
    write(tmp_path, {"eos_token_id": 151645, "text_config": {"eos_token_id": 7}}, {"eos_token_id": [151645, 151643]})
    assert eos_ids(tmp_path, tokenizer) == {151645, 151643, 7, tokenizer.eos_id}


def test_W10_sources_may_be_absent(tmp_path: Path) -> None:
    tokenizer = small.byte_level()
    assert eos_ids(tmp_path, tokenizer) == {tokenizer.eos_id}
    assert eos_ids(write(tmp_path, {"eos_token_id": None}), tokenizer) == {tokenizer.eos_id}


@pytest.mark.parametrize("value", ["2", [2, "3"], True, -1, {"id": 2}, 2.0])
def test_what_is_not_an_id_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TokenizerError, match=r"generation_config\.json: eos_token_id must be"):
        eos_ids(write(tmp_path, {}, {"eos_token_id": value}), small.byte_level())
