"""Plans into constraints: bounded in size and work, in a small pool of threads (cases J5 and J8)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any

from dgpp.text.constraints.armed import Armed, Shape
from dgpp.text.constraints.builder import Builder
from dgpp.text.constraints.errors import CompilerBusy, GrammarError
from dgpp.text.constraints.lark_check import check_lark, regex_lark
from dgpp.text.constraints.limits import DEFAULT_LIMITS, Limits
from dgpp.text.constraints.matcher import Grammar
from dgpp.text.constraints.plan import Plan, Tools
from dgpp.text.constraints.response_format import ResponseFormat, any_object
from dgpp.text.constraints.schema_checked import CheckedSchema, as_text, blamed, value_grammar
from dgpp.text.constraints.tool_values import ToolValues
from dgpp.text.constraints.trigger import Trigger
from dgpp.text.constraints.vocabulary import TokenVocabulary

log = logging.getLogger(__name__)

Factory = Callable[[], Armed]
# Any spelling of a text by tokens may be chosen, not only the tokenizer's own.
_HEAD = '%llguidance {"no_forcing": true}\n'
_SPACE = r"SPACE: /[ \t\r\n]{0,16}/"


def compile(plan: Plan, vocabulary: TokenVocabulary, limits: Limits = DEFAULT_LIMITS) -> Factory | None:
    """What makes a fresh constraint for each continuation of an answer, or None where the plan asks for nothing.

    Raises GrammarError. It takes as long as it takes: a server goes through a `Compiler`.
    """
    return _compile(plan, Builder(vocabulary, limits))


class Compiler:
    """Compiles for the requests of a server, in threads of its own.

    Safe to use from several threads.
    """

    def __init__(
        self, vocabulary: TokenVocabulary, limits: Limits = DEFAULT_LIMITS, *, workers: int = 2, queue: int = 32
    ) -> None:
        self._limits = limits
        self._builder = Builder(vocabulary, limits)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="dgpp-constraints")
        self._places = threading.BoundedSemaphore(workers + queue)

    def prepare(self) -> Future[object]:
        """Reads the vocabulary in the background; otherwise the first request that needs it waits for that."""
        return self._pool.submit(lambda: self._builder.vocabulary.library)

    def compile(self, plan: Plan) -> Factory | None:
        """As `compile`, within `limits.seconds`.

        Raises GrammarError for a plan that cannot be enforced or takes too long, CompilerBusy when too many wait.
        """
        if plan.response.kind == "text" and plan.tools is None and plan.thinking is None:
            return None
        if not self._places.acquire(blocking=False):
            raise CompilerBusy("too many schemas and grammars are being compiled; try again")
        work = self._pool.submit(_compile, plan, self._builder)
        work.add_done_callback(lambda _: self._places.release())
        try:
            return work.result(self._limits.seconds)
        except FutureTimeout:
            if work.cancel():
                raise CompilerBusy("the compilers of schemas and grammars are busy; try again") from None
            raise _too_slow(plan, self._limits.seconds) from None

    def close(self) -> None:
        """Ends the threads, once what they are at is done."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _too_slow(plan: Plan, seconds: float) -> GrammarError:
    of_tools = plan.tools is not None and plan.response.kind == "text"
    at = "tools" if of_tools else plan.response.pointer
    code = "invalid_grammar" if plan.response.kind in ("regex", "lark") else "unsupported_schema"
    advice = "simplify its patterns, bounds and alternatives"
    return GrammarError(f"{at} takes more than {seconds:g} seconds to compile; {advice}", at, code)


def _compile(plan: Plan, builder: Builder) -> Factory | None:
    thinking, tools = plan.thinking, plan.tools
    if thinking is not None and thinking.budget is not None and thinking.closer not in thinking.hand_over:
        raise ValueError("a budget for thinking needs a hand-over that holds the closing marker")
    shape = Shape(builder.vocabulary, thinking, _response(plan.response, builder))
    if tools is not None and tools.declared:
        shape = _with_tools(shape, tools, builder)
    if shape.trigger is not None and shape.trigger.id is None:
        for said in range(len(shape.trigger.before)):
            shape.barred(said)  # found here, so that no step has to
    bounded = thinking is not None and thinking.budget is not None
    if not (shape.content or shape.calls or shape.forbidden or bounded):
        return None
    return lambda: Armed(shape)


def _with_tools(shape: Shape, tools: Tools, builder: Builder) -> Shape:
    """The shape of an answer that may, must or must not call (the table of spec/api.md §7.2)."""
    choice, dialect = tools.choice, tools.dialect
    trigger = Trigger.of(dialect.opener, builder.vocabulary.tokenizer.control_tokens)
    shape = replace(shape, trigger=trigger, lead=dialect.lead.encode(), call_end=tools.turn_end)
    if choice.mode == "none":
        return replace(shape, forbidden=True)
    most = 1 if choice.single else None
    allowed = tuple(tool for tool in tools.declared if choice.names is None or tool.name in choice.names)
    values = ToolValues(tools.declared, builder)
    inner = dialect.grammar(allowed, least=1, most=most, value=values)
    values.finish(allowed)
    if choice.mode == "auto" and not shape.content:
        rest = "" if most == 1 else "REST\nREST: /(?s:.*)/"
        return replace(shape, calls=_calls(f"start: @inner {rest}", inner, values, builder), last=most == 1)
    lead = as_text(dialect.lead) if dialect.lead else ""
    begun = _calls(f"start: @inner SPACE\n{_SPACE}", inner, values, builder)
    whole = _calls(f"start: SPACE {lead} @inner SPACE\n{_SPACE}", inner, values, builder)
    content = (whole,) if choice.mode == "required" else (*shape.content, whole)
    return replace(shape, content=content, calls=begun, owed=choice.mode == "required")


def _calls(outer: str, inner: str, values: ToolValues, builder: Builder) -> Grammar:
    source = _source(outer, {"name": "inner", "lark_grammar": inner}, *values.grammars)
    if len(source) > builder.limits.grammar_bytes:
        raise GrammarError("tools are too large to enforce together; declare fewer or simpler ones", "tools")
    try:
        return builder.grammar(source)
    except ValueError as error:
        log.warning("the grammar of the tools does not compile: %s", error)
        raise GrammarError("tools are too complex to enforce together; simplify their schemas", "tools") from None


def _response(form: ResponseFormat, builder: Builder) -> tuple[Grammar, ...]:
    match form.kind:
        case "text":
            return ()
        case "json":
            assert form.schema is not None
            try:
                return (_json(form.schema, builder),)
            except GrammarError as error:
                if form.strict:
                    raise
                return _response(any_object(error), builder)
        case "regex":
            inner = regex_lark(form.source)
        case "lark":
            check_lark(form.source, form.pointer)
            inner = form.source
    source = _source("start: @inner", {"name": "inner", "lark_grammar": inner})
    at = form.pointer
    if len(source) > builder.limits.grammar_bytes:
        raise GrammarError(f"{at} is larger than {builder.limits.grammar_bytes} bytes", at, "invalid_grammar")
    try:
        grammar = builder.grammar(source)
    except ValueError as error:
        raise GrammarError(f"{at} is not a usable grammar: {error}", at, "invalid_grammar") from None
    if not grammar.fits_something:
        raise GrammarError(f"{at} fits no text", at, "invalid_grammar")
    return (grammar,)


def _json(schema: CheckedSchema, builder: Builder) -> Grammar:
    """The grammar of a JSON value with white space before and after it."""
    value = {"name": "value", "json_schema": value_grammar(schema)}
    try:
        grammar = builder.grammar(_source(f"start: SPACE @value SPACE\n{_SPACE}", value))
    except ValueError as error:
        raise blamed(schema, str(error), builder.verify) from None
    if not grammar.fits_something:
        raise schema.at.refused("fits no value, or is too complex to enforce")
    return grammar


def _source(outer: str, *named: dict[str, Any]) -> str:
    """Grammars for the library: `outer`, in Lark, refers to the named ones as @NAME."""
    return as_text({"grammars": [{"lark_grammar": _HEAD + outer}, *named]})
