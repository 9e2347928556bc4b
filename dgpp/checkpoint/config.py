"""The JSON files of a checkpoint, and what several of them say together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgpp.checkpoint.errors import CheckpointError

if TYPE_CHECKING:
    from dgpp.checkpoint.reader import Checkpoint


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError naming the file, and the place where it is broken."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must hold a JSON object, not a {type(value).__name__}")
    return value


def eos_ids(checkpoint: Checkpoint) -> frozenset[int]:
    """The ids that end a text: the union of what all files of a checkpoint say.

    Releases disagree with themselves: config.json often names only the base model's end of text while
    generation_config.json or the tokenizer names the end of a chat turn. Read are `eos_token_id` of config.json (also
    of its `text_config`) and generation_config.json, and `eos_token` of tokenizer_config.json. Raises CheckpointError
    when a field is neither an id nor a list of ids, or when the tokenizer does not know its own end token.
    """
    directory = checkpoint.directory
    ids = _ids(directory / "config.json", "eos_token_id", checkpoint.config)
    ids |= _ids(directory / "generation_config.json", "eos_token_id", checkpoint.generation_config)
    if isinstance(nested := checkpoint.config.get("text_config"), dict):
        ids |= _ids(directory / "config.json: text_config", "eos_token_id", nested)
    if "tokenizer_config.json" in checkpoint.tokenizer_files:
        ids |= _token_id(checkpoint.tokenizer_files)
    return frozenset(ids)


def _ids(path: Path, field: str, fields: Mapping[str, Any]) -> set[int]:
    value = fields.get(field)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(item) is int and item >= 0 for item in ids):
        raise CheckpointError(f"{path}: {field} must be a token id or a list of them, got {value!r}")
    return set(ids)


def _token_id(files: Mapping[str, Path]) -> set[int]:
    """The id of `eos_token`, a string or an object with `content`; none when the field is absent."""
    path = files["tokenizer_config.json"]
    fields = read_json(path)
    token = fields.get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if token is None:
        return set()
    for content, number in _known_tokens(files, fields):
        if content == token and type(number) is int:
            return {number}
    raise CheckpointError(f"{path}: eos_token {token!r} has no id in added_tokens_decoder or tokenizer.json")


def _known_tokens(files: Mapping[str, Path], fields: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    """(content, id) of the special tokens, then of the vocabulary; tokenizer.json is parsed only when needed."""
    decoder = fields.get("added_tokens_decoder")
    for number, entry in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(entry, dict) and number.isdecimal():
            yield entry.get("content"), int(number)
    if "tokenizer.json" in files:
        tokenizer = read_json(files["tokenizer.json"])
        for entry in tokenizer.get("added_tokens") or ():
            if isinstance(entry, dict):
                yield entry.get("content"), entry.get("id")
        model = tokenizer.get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocabulary, dict):
            yield from vocabulary.items()
