"""A tokenizer's model without its added tokens, for each place that a stretch of text can have in a prompt.

SentencePiece-like tokenizers put a space before a text: some before the first only, some after every special token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

import tokenizers

Place = Literal["first", "later", "inner"]  # at the prompt's start, after a control token, within running text


def plain_tokenizers(spec: Mapping[str, Any]) -> dict[Place, tokenizers.Tokenizer]:
    """The tokenizers that encode text at each place; `spec` is the content of tokenizer.json."""
    built: dict[str, tokenizers.Tokenizer] = {}
    result: dict[Place, tokenizers.Tokenizer] = {}
    for place in get_args(Place):
        plain = _without_added(spec, place)
        different = json.dumps([plain.get("pre_tokenizer"), plain.get("normalizer")])
        if different not in built:
            built[different] = tokenizers.Tokenizer.from_str(json.dumps(plain))
        result[place] = built[different]
    return result


def prompt_prefix(post_processor: Mapping[str, Any] | None) -> list[int]:
    """The ids that a post-processor puts before a text, usually BOS."""
    if post_processor is None:
        return []
    letter = 2**31  # an id that no vocabulary has
    tiny: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": post_processor,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {"a": letter}, "merges": []},
    }
    ids: list[int] = tokenizers.Tokenizer.from_str(json.dumps(tiny)).encode("a").ids
    return ids[: ids.index(letter)]


def _without_added(spec: Mapping[str, Any], place: Place) -> dict[str, Any]:
    plain = dict(spec) | {"added_tokens": [], "truncation": None, "padding": None, "post_processor": None}
    if place != "first":
        plain["pre_tokenizer"] = _without_space(spec.get("pre_tokenizer"), place)
    if place == "inner":
        plain["normalizer"] = _without_prepend(spec.get("normalizer"))
    return plain


def _without_space(step: Any, place: Place) -> Any:
    """The pre-tokenizer without the space that it puts before the text at another place than this."""
    match step:
        case {"type": "Sequence", "pretokenizers": list(steps)}:
            return step | {"pretokenizers": [_without_space(inner, place) for inner in steps]}
        case {"type": "Metaspace"} if place == "inner" or step.get("prepend_scheme") == "first":
            return (
                step | {"prepend_scheme": "never"} | ({"add_prefix_space": False} if "add_prefix_space" in step else {})
            )
        case {"type": "ByteLevel"} if place == "inner":
            return step | {"add_prefix_space": False}
        case _:
            return step


def _without_prepend(step: Any) -> Any:
    match step:
        case {"type": "Sequence", "normalizers": list(steps)}:
            return step | {"normalizers": [inner for inner in map(_without_prepend, steps) if inner is not None]}
        case {"type": "Prepend"}:
            return None
        case _:
            return step
