"""Masks are exact, and a pure function of the tokens accepted (spec/api.md §7.3, §8.1; case J6)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dgpp.text.constraints import ConstraintFailed, Plan, TokenVocabulary, compile, parse_response_format
from tests.text import small
from tests.text.constraints.support import (
    EOS,
    Tokens,
    allowed,
    byte_vocabulary,
    draw,
    feed,
    json_plan,
    vocabulary,
)

PLANS: dict[str, Plan] = {
    "object": json_plan(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 4},
                "at": {"type": "string", "format": "date"},
                "n": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 20},
                "tags": {"type": "array", "items": {"enum": ["ab", "é", 'a"b']}, "maxItems": 2},
            },
            "required": ["name", "n"],
            "additionalProperties": False,
        }
    ),
    "open": json_plan({"type": "object", "properties": {"ab": {"type": "integer"}}}),
    "union": json_plan(
        {"anyOf": [{"type": "integer", "multipleOf": 7}, {"const": {"id": [1, None]}}, {"type": "null"}]}
    ),
    "recursive": json_plan({"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}),
    "any object": Plan(parse_response_format({"type": "json_object"})),
    "regex": Plan(parse_response_format({"type": "regex", "pattern": "(ab|a<tool|é)+[0-9]{2}"})),
    "lark": Plan(
        parse_response_format(
            {
                "type": "grammar",
                "grammar": {
                    "syntax": "lark",
                    "definition": 'start: "(" start ")" | NUMBER\n%import common.NUMBER\n%ignore " "',
                },
            }
        )
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_api_8_1_mask_is_what_simulating_every_token_gives(name: str) -> None:
    words, letters = vocabulary(), byte_vocabulary()
    make, spell = compile(PLANS[name], words), compile(PLANS[name], letters)
    assert make is not None
    assert spell is not None
    tokens = words.tokenizer
    eos, last = tokens.control_tokens[EOS], letters.tokenizer.control_tokens[EOS]
    for seed in range(2):
        ids, _ = draw(make, words, seed)
        constraint, reference = make(), spell()
        for id in [*ids[:60], None]:
            expected = {eos} if last in allowed(reference) else set()
            for token in range(words.vocab_size):
                data = words.token_bytes(token)
                if data and _follows(reference.copy(), data):
                    expected.add(token)
            assert allowed(constraint) == expected
            if id is not None:
                constraint.accept(id)
                feed(reference, words.token_bytes(id))


def _follows(reference: Any, data: bytes) -> bool:
    for byte in data:
        if not reference.allowed()[byte]:
            return False
        reference.accept(byte)
    return True


@pytest.mark.parametrize("name", PLANS)
def test_api_7_3_masks_are_identical_on_every_rank(name: str) -> None:
    # Ranks compile for themselves, and one of them has seen other requests before.
    plans = PLANS[name]
    first, second = (
        compile(plans, vocabulary()),
        compile(plans, TokenVocabulary.of(Tokens(), vocabulary().vocab_size, vocabulary().eos)),
    )
    assert first is not None
    assert second is not None
    for seed in range(20):
        draw(first, vocabulary(), seed)
    ids, _ = draw(first, vocabulary(), 99)
    one, other = first(), second()
    for id in ids:
        np.testing.assert_array_equal(one.allowed(), other.allowed())
        other.allowed()  # asking twice changes nothing
        one.accept(id)
        other.accept(id)
    np.testing.assert_array_equal(one.allowed(), other.allowed())


@pytest.mark.parametrize("name", PLANS)
def test_J6_masks_along_a_draft_are_those_of_single_steps(name: str) -> None:
    make = compile(PLANS[name], vocabulary())
    assert make is not None
    ids, _ = draw(make, vocabulary(), 5)
    source = random.Random(0)
    committed = make()
    at = 0
    while at < len(ids):
        drafted = ids[at : at + source.randint(1, 5)]
        ahead = committed.copy()
        along = [ahead.allowed()]
        for id in drafted:
            ahead.accept(id)
            along.append(ahead.allowed())
        kept = source.randint(0, len(drafted) - 1) + 1  # the rest is rejected
        for id, mask in zip(drafted[:kept], along, strict=False):
            np.testing.assert_array_equal(committed.allowed(), mask)
            committed.accept(id)
        np.testing.assert_array_equal(committed.allowed(), along[kept])
        at += kept


def test_J6_rejected_draft_ends_its_rows_and_leaves_the_committed_ones() -> None:
    make = compile(json_plan({"type": "integer"}), vocabulary())
    assert make is not None
    committed = make()
    feed(committed, b"12")
    before = committed.allowed()
    ahead = committed.copy()
    with pytest.raises(ConstraintFailed, match="not allowed"):
        ahead.accept(ord("x"))
    with pytest.raises(ConstraintFailed):
        ahead.allowed()
    with pytest.raises(ConstraintFailed):
        ahead.accept(ord("3"))
    np.testing.assert_array_equal(committed.allowed(), before)
    feed(committed, b"3")


def test_api_7_3_control_tokens_and_padding_are_never_text() -> None:
    words = vocabulary()
    make = compile(json_plan({"type": "string"}), words)
    assert make is not None
    constraint = make()
    feed(constraint, b'"<tool_call>')
    mask = constraint.allowed()
    assert mask is not None
    assert mask.shape == (words.vocab_size,)
    assert not mask.flags.writeable
    assert not mask[words.tokenizer.vocab_size :].any()
    assert not mask[list(words.controls)].any()
    for token in (*words.controls, words.vocab_size - 1, words.vocab_size, -1):
        with pytest.raises(ConstraintFailed):
            constraint.copy().accept(token)


def test_api_7_3_ids_with_equal_bytes_are_allowed_alike() -> None:
    words = vocabulary()
    twins = [id for id in range(words.vocab_size) if words.token_bytes(id) == b"ab"]
    make = compile(json_plan({"const": "ab"}), words)
    assert make is not None
    constraint = make()
    feed(constraint, b'"')
    assert len(twins) == 2
    assert set(twins) <= allowed(constraint)


def test_api_8_1_white_space_is_bounded() -> None:
    make = compile(json_plan({"type": "array", "items": {"type": "null"}, "minItems": 1}), vocabulary())
    assert make is not None
    for prefix in (b"", b"[", b"[null", b"[null,", b"[null]"):
        constraint = make()
        feed(constraint, prefix + b" \n" * 8)
        assert not allowed(constraint) & {*b" \t\r\n"}
        shorter = make()
        feed(shorter, prefix + b" \n" * 7 + b" ")
        assert set(b" \t\r\n") <= allowed(shorter)


def test_api_8_1_after_the_value_only_white_space_or_eos() -> None:
    make = compile(json_plan({"type": "object"}), vocabulary())
    assert make is not None
    constraint = make()
    feed(constraint, b"{}")
    eos = vocabulary().tokenizer.control_tokens[EOS]
    left = allowed(constraint) - {eos}
    assert eos in allowed(constraint)
    assert {vocabulary().token_bytes(id).strip() for id in left} == {b""}
    constraint.accept(eos)
    assert allowed(constraint) == {eos}  # where EOS is to be ignored, nothing but EOS follows


@pytest.mark.parametrize("tokenizer", [small.byte_level, small.llama2, lambda: small.metaspace("first")])
def test_api_7_3_tokenizers_of_every_kind(tokenizer: Any) -> None:
    tokens = tokenizer()
    words = TokenVocabulary.of(tokens, tokens.vocab_size + 100, {tokens.eos_id})
    make = compile(
        json_plan({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}), words
    )
    assert make is not None
    text = '{"city": "Paris café 日本"}'
    constraint = make()
    feed(constraint, tokens.encode(text))  # as the tokenizer spells it
    assert tokens.eos_id in allowed(constraint)
    assert all(words.token_bytes(id) == tokens.token_bytes(id) for id in tokens.encode(text))
    for seed in range(5):
        ids, data = draw(make, words, seed)
        assert data.decode() == tokens.decode(ids, at_start=False)
