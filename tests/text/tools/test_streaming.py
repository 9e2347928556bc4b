"""Calls while they come: L11, and what L12 asks of the events."""

from __future__ import annotations

import json

import pytest

from dgpp.text.events import Call, CallArguments, CallClosed, CallOpened, Finished
from dgpp.text.pipeline import Pipeline
from dgpp.text.reasoning import Markers, Reasoning
from dgpp.text.tools.dialect import Dialect
from tests.text.splits import check_every_split

from .support import CONTROL, DIALECTS, LOOKUP, MARKED, answer, events, items, tools, vocabulary

TOOLS = tools(**LOOKUP)
every = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
TEXT = "A long text: " + "word " * 20
LONG = Call("lookup", json.dumps({"query": TEXT, "max_results": 10.5, "exclude": [1, 2]}))


@every
def test_L11_arguments_come_while_they_are_written(dialect: Dialect) -> None:
    steps = events(dialect, dialect.render([LONG]), TOOLS, streams=True)
    deltas = [event.text for step in steps for event in step if isinstance(event, CallArguments)]
    assert "".join(deltas) == LONG.arguments
    assert len(deltas) > len(TEXT)  # at least one for each character of the string
    assert max(map(len, deltas)) < 25


@every
def test_L11_without_streaming_a_call_comes_as_a_whole(dialect: Dialect) -> None:
    steps = events(dialect, dialect.render([LONG, LONG]), TOOLS, streams=False)
    found = [event for step in steps for event in step]
    call = [CallOpened(0, "lookup"), CallArguments(0, LONG.arguments), CallClosed(0)]
    assert found[:3] == call
    assert found[3:6] == [CallOpened(1, "lookup"), CallArguments(1, LONG.arguments), CallClosed(1)]


@every
def test_L11_all_properties_survive_streaming(dialect: Dialect) -> None:
    arguments = '{"max_results": 1, "a": 2, "b": 3.50, "fresh": true}'
    for streams in (False, True):
        found = answer(dialect, dialect.render([Call("lookup", arguments)]), TOOLS, streams=streams)
        assert found.calls[0].arguments.replace("3.50", "3.5") == arguments.replace("3.50", "3.5")


@every
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_L12_one_opening_for_each_call_indices_from_0_and_the_finish(dialect: Dialect, streams: bool) -> None:
    calls = [LONG, Call("other", "{}"), Call("run", "x", "custom")]
    steps = events(dialect, f"So: {dialect.render(calls)}", TOOLS, streams=streams)
    found = [event for step in steps for event in step]
    opened = [event for event in found if isinstance(event, CallOpened)]
    assert opened == [CallOpened(0, "lookup"), CallOpened(1, "other"), CallOpened(2, "run", "custom")]
    assert [event.index for event in found if isinstance(event, CallClosed)] == [0, 1, 2]
    indices = [event.index for event in found if isinstance(event, CallOpened | CallArguments | CallClosed)]
    assert indices == sorted(indices)
    assert isinstance(found[-1], Finished)
    assert found[-1].reason == "tool_calls"


@every
def test_L12_a_cut_call_ends_for_length(dialect: Dialect) -> None:
    whole = dialect.render([LONG])
    cut = whole[: whole.index("word word") + 7]
    for streams in (False, True):
        steps = events(dialect, cut, TOOLS, streams=streams, reason="length")
        last = steps[-1][-1]
        assert isinstance(last, Finished)
        assert last.reason == "length"


@pytest.mark.parametrize("dialect", MARKED.values(), ids=MARKED)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_L9_a_call_within_unclosed_thinking_is_a_call(dialect: Dialect, streams: bool) -> None:
    words = vocabulary()
    wire = dialect.render([LONG, Call("other", "{}")])

    def make() -> Pipeline:
        thinking = Reasoning(Markers(98, 99), True, ends=[CONTROL[dialect.opener]])
        return Pipeline(words, reasoning=thinking, calls=dialect.parser(TOOLS, streams=streams))

    found = check_every_split(items(dialect, f"I need it.{wire}"), words, make, samples=2)
    assert (found.calls, found.content) == ((LONG, Call("other", "{}")), "")
    assert found.reasoning.removesuffix("<").rstrip() == "I need it."
