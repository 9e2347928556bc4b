"""The ids that end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dgpp.text.tokenizer import Tokenizer, TokenizerError, read_object


def eos_ids(directory: str | Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Every id that config.json, generation_config.json or the tokenizer calls end of sequence.

    Releases name different ones in the three places and mean all of them. Raises TokenizerError for an
    `eos_token_id` that is neither an id nor a list of ids.
    """
    directory = Path(directory)
    config = read_object(directory / "config.json")
    text_config = config.get("text_config")
    ids = set() if tokenizer.eos_id is None else {tokenizer.eos_id}
    for name, source in (
        ("config.json", config),
        ("config.json text_config", text_config if isinstance(text_config, dict) else {}),
        ("generation_config.json", read_object(directory / "generation_config.json")),
    ):
        ids |= _ids(source.get("eos_token_id"), f"{directory / name}")
    return frozenset(ids)


def _ids(value: Any, where: str) -> set[int]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in values):
        raise TokenizerError(f"{where}: eos_token_id must be a token id or a list of them, not {value!r}")
    return set(values)
