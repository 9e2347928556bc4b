"""What is built to be slow is enforced or refused within stated times, and delays nobody (case J5)."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dgpp.text.constraints import (
    DEFAULT_LIMITS,
    Compiler,
    CompilerBusy,
    ConstraintFailed,
    GrammarError,
    Limits,
    Plan,
    TokenVocabulary,
    parse_response_format,
)
from dgpp.text.constraints.armed import Armed
from dgpp.text.constraints.builder import Builder
from dgpp.text.constraints.matcher import Grammar
from tests.text.constraints.support import Tokens, feed, json_plan, vocabulary

SECONDS = 10.0  # generous: these machines are slow and shared; the figures are in bench/records
STEP = 2.0


def pattern(text: str) -> dict[str, Any]:
    return {"type": "string", "pattern": text}


def nested(levels: int) -> dict[str, Any]:
    """`anyOf` within `anyOf`, each with an object of its own."""
    schema: dict[str, Any] = {"type": "string"}
    for level in range(levels):
        inner = {"type": "object", "properties": {f"k{level}": schema}, "required": [f"k{level}"]}
        schema = {"anyOf": [inner, {"type": "integer", "minimum": level}, {"const": f"level {level}"}]}
    return schema


def doubled(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = pattern("^a+$")
    for _ in range(levels):
        schema = {"anyOf": [schema, schema]}
    return schema


def branching(levels: int) -> dict[str, Any]:
    """`anyOf` of two at every level, of which no two options exclude each other."""
    if levels == 0:
        return {"type": "object"}
    return {"anyOf": [branching(levels - 1), branching(levels - 1)]}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: dict[str, dict[str, Any]] = {
    "alternation": pattern("^(a|a)*$"),
    "repetitions": pattern("a{100}{100}{100}"),
    "repetitions in groups": pattern("^(?:(?:a{100}){100}){100}$"),
    "optional repetitions": pattern("^((a{1,50}){1,50}){1,50}$"),
    "backtracking": pattern("^(x+x+)+y$"),
    "many wildcards": pattern("(.*a){20}"),
    "long memory": pattern("a.{15}$"),
    "letters of the world": pattern(r"^\p{L}{1,1000}$"),
    "nested anyOf": nested(12),
    "doubled anyOf": doubled(10),
    "cartesian": {
        "allOf": [
            {"anyOf": [{"type": "object", "properties": {f"k{i}{j}": {"type": "string"}}} for j in range(6)]}
            for i in range(6)
        ]
    },
    "a megabyte": {
        "type": "object",
        "properties": {f"p{at}": {"type": "string", "title": "x" * 90} for at in range(9000)},
    },
    "deep": deep(30),
    "too deep": deep(5000),
    "long string": {"type": "string", "minLength": 2**31 - 1},
    "long array": {"type": "array", "minItems": 2**31 - 1},
    "wide object": {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(5000)}},
    "wide choice": {
        "anyOf": [{"type": "object", "properties": {f"p{i}{j}": {} for j in range(100)}} for i in range(20)]
    },
    "many questions": {"oneOf": [branching(8), branching(8)]},
    "chain of definitions": {
        "$defs": {f"d{at}": {"$ref": f"#/$defs/d{at - 1}"} if at else {"type": "null"} for at in range(900)},
        "$ref": "#/$defs/d899",
    },
    "many definitions": {
        "$defs": {f"d{at}": {"const": at} for at in range(3000)},
        "anyOf": [{"$ref": f"#/$defs/d{at}"} for at in range(3000)],
    },
    "big divisor": {"type": "number", "multipleOf": 1_000_003},
    "digits": {"type": "number", "minimum": 1e-300, "maximum": 1e300},
    "long enum": {"enum": [f"value {at} of the enumeration" for at in range(5000)]},
    "ambiguous recursion": {
        "$defs": {"n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}] * 6}},
        "$ref": "#/$defs/n",
    },
    "many formats": {
        "type": "object",
        "properties": {f"e{at}": {"type": "string", "format": "email"} for at in range(300)},
    },
}


@pytest.fixture(scope="module")
def compiler() -> Any:
    made = Compiler(vocabulary())
    yield made
    made.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_J5_hostile_schema_is_enforced_or_refused_in_time(name: str, compiler: Compiler) -> None:
    started = time.perf_counter()
    make, refused = _compiled(compiler, HOSTILE[name])
    assert time.perf_counter() - started < SECONDS
    if make is None:
        assert refused is not None
        assert refused.code == "unsupported_schema"
        assert refused.pointer.startswith("response_format.json_schema.schema")
        return
    source = random.Random(name)
    constraint = make()
    worst = 0.0
    with contextlib.suppress(ConstraintFailed):  # a step over its limits ends this request, and nothing else
        for _ in range(200):
            started = time.perf_counter()
            choices = np.nonzero(constraint.allowed())[0]
            worst = max(worst, time.perf_counter() - started)
            text = [id for id in choices if id < 128 and id != ord('"')]
            constraint.accept(int(source.choice(text or list(choices))))
    assert worst < STEP


def _compiled(compiler: Compiler, schema: Any) -> tuple[Callable[[], Armed] | None, GrammarError | None]:
    try:
        return compiler.compile(json_plan(schema)), None
    except GrammarError as error:
        return None, error


def test_J5_step_over_its_limits_ends_the_request_clearly() -> None:
    plan = json_plan({"type": "string", "maxLength": 500})
    compiler = Compiler(vocabulary(), replace(DEFAULT_LIMITS, lexer_states=60))
    make = compiler.compile(plan)
    assert make is not None
    constraint = make()
    with pytest.raises(ConstraintFailed, match=r"too costly|not allowed"):
        feed(constraint, b'"' + b"abcdefgh" * 60)
    for _ in range(2):
        with pytest.raises(ConstraintFailed):
            constraint.allowed()
        with pytest.raises(ConstraintFailed):
            constraint.accept(ord("a"))
    again = compiler.compile(plan)  # the same for another request
    assert again is not None
    feed(again(), b'"ab')


def test_J5_limits_are_named() -> None:
    small = Limits(schema_bytes=200, schema_depth=6, schema_nodes=12)
    for schema, reason in (
        ({"type": "string", "title": "x" * 300}, "200 bytes"),
        (deep(6), "6 deep"),
        ({"type": "array", "prefixItems": [{}] * 20}, "12 parts"),
    ):
        named = {"name": "a", "schema": schema, "strict": True}
        with pytest.raises(GrammarError, match=reason):
            parse_response_format({"type": "json_schema", "json_schema": named}, small)


class Slow:
    """A compiler of grammars that takes as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()
        plain = Grammar.compile

        def compile(source: str, words: TokenVocabulary, limits: Limits) -> Grammar:
            if "slow" in source:
                self.entered.release()
                self.release.wait(30)
            return plain(source, words, limits)

        monkeypatch.setattr(Grammar, "compile", staticmethod(compile))


def test_J5_compile_over_its_time_is_refused_and_does_not_hold_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    compiler = Compiler(vocabulary(), replace(DEFAULT_LIMITS, seconds=0.3), workers=2)
    started = time.perf_counter()
    with pytest.raises(GrammarError, match=r"more than 0.3 seconds to compile; simplify") as refused:
        compiler.compile(json_plan({"const": "slow"}))
    assert time.perf_counter() - started < SECONDS
    assert (refused.value.pointer, refused.value.code) == ("response_format.json_schema.schema", "unsupported_schema")
    assert compiler.compile(json_plan({"const": "quick"})) is not None  # the other worker
    slow.release.set()
    compiler.close()


def test_J5_queue_of_the_compiler_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    compiler = Compiler(vocabulary(), workers=1, queue=1)
    with ThreadPoolExecutor(2) as clients:
        first = clients.submit(compiler.compile, json_plan({"const": "slow"}))
        assert slow.entered.acquire(timeout=SECONDS)
        second = clients.submit(compiler.compile, json_plan({"const": "waits"}))
        while compiler._pool._work_queue.qsize() < 1:
            time.sleep(0.001)
        with pytest.raises(CompilerBusy):
            compiler.compile(json_plan({"const": "too many"}))
        slow.release.set()
        assert first.result(SECONDS) is not None
        assert second.result(SECONDS) is not None
    assert compiler.compile(json_plan({"const": "later"})) is not None
    compiler.close()


def test_J5_waiting_in_the_queue_is_not_the_schemas_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    compiler = Compiler(vocabulary(), replace(DEFAULT_LIMITS, seconds=0.2), workers=1)
    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(compiler.compile, json_plan({"const": "slow"}))
        assert slow.entered.acquire(timeout=SECONDS)
        with pytest.raises(CompilerBusy):
            compiler.compile(json_plan({"const": "fine"}))
        with pytest.raises(GrammarError):
            first.result(SECONDS)
        slow.release.set()
    compiler.close()


def test_J5_other_threads_run_while_a_grammar_is_compiled() -> None:
    heavy = json_plan({"enum": [f"value {at} of the enumeration" for at in range(7000)]})
    gaps: list[float] = []
    done = threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0.0005)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=tick)
    compiler = Compiler(vocabulary())
    thread.start()
    started = time.perf_counter()
    assert compiler.compile(heavy) is not None
    took = time.perf_counter() - started
    done.set()
    thread.join()
    compiler.close()
    assert len(gaps) > 3
    assert max(gaps) < max(0.5 * took, 0.25)


def test_J5_what_is_allowed_does_not_depend_on_earlier_requests() -> None:
    # The library lets walks through one grammar share the states of its lexer, and their limit.
    compiler = Compiler(vocabulary(), replace(DEFAULT_LIMITS, lexer_states=300))
    words = [hashlib.sha256(bytes([at])).hexdigest()[:20] for at in range(40)]
    masks = []
    for word in words:
        make = compiler.compile(json_plan({"enum": words}))
        assert make is not None
        constraint = make()
        feed(constraint, f'"{word}"'.encode())
        masks.append(constraint.allowed())
    assert all(np.array_equal(mask, masks[0]) for mask in masks)
    compiler.close()


def test_J5_schemas_of_tools_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(vocabulary(), DEFAULT_LIMITS)
    compiled: list[str] = []
    plain = Grammar.compile

    def count(source: str, words: TokenVocabulary, limits: Limits) -> Grammar:
        compiled.append(source)
        return plain(source, words, limits)

    monkeypatch.setattr(Grammar, "compile", staticmethod(count))
    for _ in range(3):
        builder.verify("start: /a/")
        with pytest.raises(ValueError, match="b"):
            builder.verify("start: b")
    assert compiled == ["start: /a/", *["start: b"] * 3]


def test_J5_plans_without_a_grammar_do_not_wait() -> None:
    compiler = Compiler(vocabulary(), workers=1, queue=0)
    compiler.close()
    assert compiler.compile(Plan()) is None


def test_J5_vocabulary_is_read_once_and_beforehand() -> None:
    reads = 0

    class Counting(Tokens):
        def token_bytes(self, id: int) -> bytes:
            nonlocal reads
            reads += 1
            return super().token_bytes(id)

    tokens = Counting()
    words = TokenVocabulary.of(tokens, tokens.vocab_size, {tokens.vocab_size - 1})
    assert reads == 0
    compiler = Compiler(words)
    compiler.prepare().result(SECONDS)
    assert reads == tokens.vocab_size
    compiler.compile(json_plan({"type": "string"}))
    assert reads == tokens.vocab_size
    compiler.close()
