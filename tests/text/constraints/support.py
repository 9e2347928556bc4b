"""Small vocabularies, random answers drawn through the masks, and what a whole answer is checked with."""

from __future__ import annotations

import datetime
import decimal
import functools
import ipaddress
import json
import random
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np

from dgpp.engine.request import Constraint
from dgpp.text.constraints import Plan, TokenVocabulary, compile, parse_response_format

EOS, THINK, END_THINK, CALL, END_CALL, OBSERVATION = (
    "<eos>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|observation|>",
)
CONTROLS = (EOS, THINK, END_THINK, CALL, END_CALL, OBSERVATION)
# Tokens that straddle what a grammar keeps apart, and two with the same bytes.
MERGES = (
    *(
        "  ",
        "\n\n",
        "\n  ",
        '{"',
        '":',
        '": ',
        '",',
        '", "',
        '"}',
        "}\n",
        '"]',
        "],",
        "[]",
        "{}",
        "}}",
        "true",
        "false",
    ),
    *(
        "null",
        "name",
        "id",
        "10",
        "00",
        "-1",
        "0.",
        ".5",
        "20",
        "-0",
        "12",
        "T",
        "Z",
        "@",
        "ab",
        "ab",
        "</",
        "><",
        ">\n",
    ),
    *(
        "\\n",
        '\\"',
        "é",
        "日本",
        "😀",
        "<tool",
        "_call",
        ">{",
        "call>",
        "a<tool_call>",
        "<tool_call>{",
        "<tool_call>[",
        "]]",
    ),
)


@dataclass(frozen=True)
class Tokens:
    """A tokenizer with a token for every byte, some longer ones, and control tokens."""

    controls: tuple[str, ...] = CONTROLS
    merges: tuple[str, ...] = MERGES

    @functools.cached_property
    def entries(self) -> list[bytes]:
        plain = [bytes([byte]) for byte in range(256)] + [text.encode() for text in self.merges]
        return plain + [text.encode() for text in self.controls]

    @property
    def vocab_size(self) -> int:
        return len(self.entries)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        first = self.vocab_size - len(self.controls)
        return {text: first + at for at, text in enumerate(self.controls)}

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset({self.control_tokens[EOS]})

    def token_bytes(self, id: int) -> bytes:
        return self.entries[id]

    def ids(self, *items: str) -> list[int]:
        """The ids of control tokens and of single bytes of text."""
        controls = self.control_tokens
        return [id for item in items for id in ([controls[item]] if item in controls else item.encode())]


@functools.cache
def vocabulary(controls: tuple[str, ...] = CONTROLS, padding: int = 7) -> TokenVocabulary:
    """A vocabulary of `Tokens` for a model that has `padding` more logits."""
    tokens = Tokens(controls)
    return TokenVocabulary.of(tokens, tokens.vocab_size + padding, {tokens.control_tokens[EOS]})


@functools.cache
def byte_vocabulary() -> TokenVocabulary:
    """Bytes and EOS alone: every mask says which bytes may follow."""
    tokens = Tokens((EOS,), ())
    return TokenVocabulary.of(tokens, tokens.vocab_size, {tokens.control_tokens[EOS]})


def json_plan(schema: Any, **more: Any) -> Plan:
    """The plan of an answer that must fit `schema`."""
    named = {"name": "answer", "schema": schema, "strict": True}
    return Plan(parse_response_format({"type": "json_schema", "json_schema": named}), **more)


def feed(constraint: Constraint, ids: Iterable[int]) -> None:
    """Accepts tokens, each of which must be allowed."""
    for id in ids:
        mask = constraint.allowed()
        assert mask is None or mask[id], f"{id} is not allowed"
        constraint.accept(id)


def allowed(constraint: Constraint) -> set[int]:
    """The allowed ids; where all are, a set of all."""
    mask = constraint.allowed()
    assert mask is not None, "every id is allowed"
    return set(np.nonzero(mask)[0].tolist())


@functools.cache
def _spelling(words: TokenVocabulary, characters: str) -> frozenset[int]:
    """Tokens that are one of these characters."""
    ids = range(words.tokenizer.vocab_size)
    return frozenset(id for id in ids if words.token_bytes(id).decode("latin-1") in set(characters))


PLAIN = "".join(map(chr, range(33, 127)))


def draw(
    make: Callable[[], Constraint], words: TokenVocabulary, seed: int, most: int = 2500
) -> tuple[list[int], bytes]:
    """A random answer: the tokens without EOS, and their text. What ends it is preferred more and more.

    Fails when it is not complete after `most` tokens.
    """
    source = random.Random(seed)
    constraint = make()
    (eos,) = words.eos
    quotes, closers, null, plain = (_spelling(words, text) for text in ('"', "}]", "n", PLAIN))
    ids: list[int] = []
    quoted = escaped = False
    for step in range(most):
        choices = np.nonzero(constraint.allowed())[0].tolist()
        assert choices, "nothing is allowed"
        pressed = source.random() < step / 120
        if eos in choices and (pressed or len(choices) == 1 or source.random() < 0.3):
            constraint.accept(eos)
            return ids, b"".join(map(words.token_bytes, ids))
        ends = quotes if quoted and not escaped else closers
        pool = [id for id in choices if id in ends] if pressed else []
        if pressed and not pool and not quoted:
            pool = [id for id in choices if id in null]  # a recursion ends
        if not pool and source.random() < 0.7:
            pool = [id for id in choices if id in plain]
        pool = pool or [id for id in choices if id != eos]
        ids.append(source.choice(pool))
        constraint.accept(ids[-1])
        for byte in words.token_bytes(ids[-1]):
            quoted ^= byte == ord('"') and not escaped
            escaped = byte == ord("\\") and not escaped
    raise AssertionError(f"not complete: {b''.join(map(words.token_bytes, ids))[-300:]!r}")


def samples(schema: Any, count: int, words: TokenVocabulary | None = None) -> list[str]:
    """Random answers that the masks of `schema` allow."""
    words = words or vocabulary()
    make = compile(json_plan(schema), words)
    assert make is not None
    return [draw(make, words, seed)[1].decode("utf-8") for seed in range(count)]


def check(schema: Any, text: str) -> None:
    """Asserts that `text` is JSON that fits, by an independent implementation, however repeated keys are read."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    tuples = "prefixItems" not in json.dumps(schema) and _has_item_list(schema)
    kind = jsonschema.Draft7Validator if tuples else jsonschema.Draft202012Validator
    for hook in (_last, _first):
        value = json.loads(text, parse_float=_decimal, object_pairs_hook=hook)
        with decimal.localcontext(prec=10_000, traps=[]):
            errors = [error.message for error in kind(exact, format_checker=FORMATS).iter_errors(value)]
        assert not errors, f"{text!r} does not fit: {errors}"


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except decimal.InvalidOperation:  # an exponent beyond what decimals can have
        return Decimal("Infinity")


def _last(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _has_item_list(node: Any) -> bool:
    if isinstance(node, dict):
        return isinstance(node.get("items"), list) or any(map(_has_item_list, node.values()))
    return isinstance(node, list) and any(map(_has_item_list, node))


FORMATS = jsonschema.FormatChecker(formats=())


def _format(name: str) -> Callable[[Callable[[str], object]], Callable[[str], object]]:
    def register(parse: Callable[[str], object]) -> Callable[[str], object]:
        def valid(value: object) -> bool:
            if isinstance(value, str):
                parse(value)
            return True

        FORMATS.checks(name, raises=ValueError)(valid)
        return parse

    return register


@_format("date")
def parse_date(value: str) -> object:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
        raise ValueError(value)
    return datetime.date.fromisoformat(value)


@_format("time")
def parse_time(value: str) -> object:
    found = re.fullmatch(r"(\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})", value, re.ASCII)
    if found is None:
        raise ValueError(value)
    return datetime.time.fromisoformat(f"{found[1]}.{(found[2] or '0')[:6]:0<6}{found[3]}")


@_format("date-time")
def parse_date_time(value: str) -> object:
    day, _, rest = value.partition("T")
    return parse_date(day), parse_time(rest)


@_format("duration")
def parse_duration(value: str) -> object:
    found = re.fullmatch(
        r"P(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", value, re.ASCII
    )
    if found is None or value == "P" or re.search(r"\d+Y\d+D|\d+H\d+S", value):
        raise ValueError(value)
    return found


@_format("hostname")
def parse_hostname(value: str) -> object:
    labels = value.split(".")
    if len(value) > 253 or not all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label) for label in labels):
        raise ValueError(value)
    return labels


@_format("email")
def parse_email(value: str) -> object:
    local, _, domain = value.rpartition("@")
    if (
        not re.fullmatch(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}", local)
        or ".." in local
        or local[0] == "." == local[-1]
    ):
        raise ValueError(value)
    return parse_hostname(domain)


@_format("uri")
def parse_uri(value: str) -> object:
    scheme, colon, rest = value.partition(":")
    if not (colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) and rest):
        raise ValueError(value)
    if not re.fullmatch(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?#\[\]]|%[0-9A-Fa-f]{2})*", rest) or rest.count("#") > 1:
        raise ValueError(value)
    return scheme


@_format("ipv4")
def parse_ipv4(value: str) -> object:
    return ipaddress.IPv4Address(value)


@_format("ipv6")
def parse_ipv6(value: str) -> object:
    return ipaddress.IPv6Address(value)


@_format("uuid")
def parse_uuid(value: str) -> object:
    if str(uuid.UUID(value)) != value.lower():
        raise ValueError(value)
    return value


FORMATS.checks("int32")(lambda value: not isinstance(value, int) or -(2**31) <= value < 2**31)
FORMATS.checks("int64")(lambda value: not isinstance(value, int) or -(2**63) <= value < 2**63)
