from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpp.text.events import Finished, LogprobDelta, StopHit, TextDelta, TopLogprob, collect
from dgpp.text.pipeline import Pipeline
from dgpp.text.reasoning import Markers, Reasoning

from . import small
from .splits import Item, Logprob, Spelled, check_every_split, few, replays
from .test_stops import cut

EOS, OPEN, CLOSE = 1, 2, 3


def vocabulary() -> Spelled:
    return Spelled(special_ids=frozenset({EOS}), markers={EOS: b"<eos>", OPEN: b"<think>", CLOSE: b"</think>"})


MARKERS = Markers(OPEN, CLOSE)


def thinking(inside: bool = False) -> Reasoning:
    return Reasoning(MARKERS, inside)


@pytest.mark.parametrize(
    ("reason", "finish"), [("eos", "stop"), ("stop", "stop"), ("cancelled", "stop"), ("length", "length")]
)
def test_finish_reasons(reason: str, finish: str) -> None:
    answer = check_every_split([b"Hello, \xf0\x9f\x98\x80!"], words := vocabulary(), lambda: Pipeline(words), reason)
    assert (answer.content, answer.finish_reason, answer.stop) == ("Hello, 😀!", finish, None)


def test_W10_end_of_sequence_is_counted_and_not_shown() -> None:
    words = vocabulary()
    pipeline = Pipeline(words)
    events = [*pipeline.feed(words.id(b"Hi")), *pipeline.feed(EOS), *pipeline.finish("eos")]
    assert events == [TextDelta("Hi"), Finished("stop", 2)]


def test_W10_an_id_that_ends_the_answer_is_hidden_though_not_special() -> None:
    words = vocabulary()
    other = words.id(b"</s>")
    pipeline = Pipeline(words, eos=frozenset({other}))
    assert collect([*pipeline.feed(words.id(b"Hi")), *pipeline.feed(other), *pipeline.finish("eos")]).content == "Hi"


def test_S1_a_character_cut_by_the_token_limit_ends_in_one_replacement() -> None:
    words = vocabulary()
    for reason in ("length", "eos"):
        items: list[Item] = ["שלום 👩‍👧".encode()[:-2]]
        assert check_every_split(items, words, lambda: Pipeline(words), reason).content == "שלום 👩‍�"


def test_S1_a_held_tail_comes_in_one_last_delta() -> None:
    words = vocabulary()
    pipeline = Pipeline(words)
    assert pipeline.feed(words.id(b"a\xf0")) == [TextDelta("a")]
    assert pipeline.feed(words.id(b"\x9f")) == []
    assert pipeline.finish("length") == [TextDelta("�"), Finished("length", 2)]


def test_S2_stop_string_over_tokens() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["DEFGHIJ"])
    for text in (b"DEF", b"G", b"HI"):
        assert pipeline.feed(words.id(text)) == []
    assert pipeline.feed(words.id(b"J")) == [StopHit("DEFGHIJ")]
    assert pipeline.stopped
    assert pipeline.feed(words.id(b"K")) == []
    assert pipeline.finish("stop") == [Finished("stop", 4)]


def test_S2_a_stop_string_on_the_last_token_allowed_is_a_stop() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["fox"])
    events = [*pipeline.feed(words.id(b"a fo")), *pipeline.feed(words.id(b"x!")), *pipeline.finish("length")]
    assert events == [TextDelta("a "), StopHit("fox"), Finished("stop", 2)]


def test_S2_stop_strings_look_at_content_only() -> None:
    words = vocabulary()
    items: list[Item] = [OPEN, "own fox é".encode(), CLOSE, b"the br", b"own fox jumps", EOS]
    answer = check_every_split(items, words, lambda: Pipeline(words, stop=["own fox"], reasoning=thinking()))
    assert (answer.reasoning, answer.content, answer.stop) == ("own fox é", "the br", "own fox")


def test_a_character_cut_by_a_change_of_field_stays_in_its_own() -> None:
    words = vocabulary()
    items: list[Item] = [OPEN, b"a\xf0\x9f", CLOSE, b"\x98\x80b"]
    answer = check_every_split(items, words, lambda: Pipeline(words, reasoning=thinking()))
    assert (answer.reasoning, answer.content) == ("a�", "��b")


def test_T11_unclosed_reasoning_stays_reasoning() -> None:
    words = vocabulary()
    answer = check_every_split([OPEN, b"thinking hard"], words, lambda: Pipeline(words, reasoning=thinking()), "length")
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("thinking hard", "", "length")


def test_T11_the_prompt_says_whether_an_answer_begins_inside_the_thinking() -> None:
    words = vocabulary()
    for inside in (True, False):
        items: list[Item] = [b"so\n", CLOSE, b"\n\nyes"]
        answer = check_every_split(items, words, lambda inside=inside: Pipeline(words, reasoning=thinking(inside)))
        expected = ("so", "yes") if inside else ("", "so\n</think>\n\nyes")
        assert (answer.reasoning, answer.content) == expected
        assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("prompt", "inside"), [([], False), ([7, OPEN], True), ([OPEN, 10], True), ([OPEN, CLOSE, 10], False), ([7], False)]
)
def test_T11_the_last_marker_of_the_prompt_decides(prompt: list[int], inside: bool) -> None:
    assert MARKERS.open_at_end(prompt) is inside


def test_api_6_2_reasoning_tokens_count_the_markers_that_the_model_wrote() -> None:
    words = vocabulary()
    ids = [words.id(b"a"), words.id(b"b"), CLOSE, words.id(b"c"), EOS]
    for tokens, inside, count in ((ids, True, 3), ([OPEN, *ids], False, 4), ([words.id(b"c"), EOS], False, 0)):
        pipeline = Pipeline(words, reasoning=thinking(inside))
        answer = collect([event for id in tokens for event in pipeline.feed(id)] + pipeline.finish("eos"))
        assert (answer.reasoning_tokens, answer.completion_tokens) == (count, len(tokens))


def test_an_opening_marker_after_the_answer_has_begun_is_text() -> None:
    words = vocabulary()
    items: list[Item] = [b"The tag ", OPEN, b" opens it, ", CLOSE, b" closes it."]
    answer = check_every_split(items, words, lambda: Pipeline(words, reasoning=thinking()))
    assert (answer.reasoning, answer.content) == ("", "The tag <think> opens it, </think> closes it.")


def test_line_breaks_at_the_seams_are_no_text() -> None:
    words = vocabulary()
    items: list[Item] = [OPEN, b"\n\none\n\ntwo\n", CLOSE, b"\n\nthree\n\nfour\n", EOS]
    answer = check_every_split(items, words, lambda: Pipeline(words, reasoning=thinking()))
    assert (answer.reasoning, answer.content) == ("one\n\ntwo", "three\n\nfour\n")


def test_folded_thinking_is_content_up_to_its_closing_marker() -> None:
    words = vocabulary()
    items: list[Item] = [b"hm\n", CLOSE, b"\nyes ", b"no", EOS]

    def make() -> Pipeline:
        return Pipeline(words, reasoning=thinking(True), folded=True, stop=["no"])

    answer = check_every_split(items, words, make)
    assert (answer.reasoning, answer.content, answer.stop) == ("", "hm\n</think>\nyes ", "no")
    for replay in replays(items, words, make):
        assert b"".join(entry.data for entry in replay.entries()).startswith(b"hm\n")


def test_S7_text_that_cannot_begin_a_stop_string_is_not_delayed() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["###"])
    for word in (b"one", b" two", b" three"):
        assert pipeline.feed(words.id(word)) == [TextDelta(word.decode())]


@few
@given(
    st.text("ab😀é", max_size=6).map(str.encode) | st.binary(max_size=6),
    st.lists(st.text("ab😀", min_size=1, max_size=3), max_size=3),
)
def test_every_split_equals_one_shot(data: bytes, stops: list[str]) -> None:
    words = vocabulary()
    answer = check_every_split([data, EOS], words, lambda: Pipeline(words, stop=stops))
    assert (answer.content, answer.stop) == cut(data.decode("utf-8", "replace"), stops)


@few
@given(st.text("ab😀é", max_size=5), st.lists(st.text("ab😀", min_size=1, max_size=3), max_size=2))
def test_logprobs_of_exactly_the_tokens_that_are_visible(text: str, stops: list[str]) -> None:
    words = vocabulary()
    visible = len(cut(text, stops)[0].encode())
    for replay in replays([text.encode(), EOS], words, lambda: Pipeline(words, stop=stops)):
        data = [words.token_bytes(token) for token in replay.tokens[:-1]]
        starts = list(itertools.accumulate(map(len, data), initial=0))
        expected = [(token, -float(at)) for at, token in enumerate(replay.tokens[:-1]) if starts[at] < visible]
        entries = replay.entries()
        assert [(entry.id, entry.logprob) for entry in entries] == expected
        assert b"".join(entry.data for entry in entries).startswith(cut(text, stops)[0].encode())
        for entry, start in zip(entries, starts, strict=False):
            # A token that completes a character is first seen where this character begins.
            assert entry.offset == len(text.encode()[:start].decode("utf-8", "ignore").encode())


def test_logprobs_follow_the_text_that_shows_them() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["bc"])
    assert [type(event) for event in pipeline.feed(words.id(b"a"), Logprob(-1.0))] == [TextDelta, LogprobDelta]
    assert pipeline.feed(words.id(b"b"), Logprob(-2.0)) == []
    last = pipeline.finish("eos")
    assert [type(event) for event in last] == [TextDelta, LogprobDelta, Finished]
    assert [entry.logprob for entry in collect(last).logprobs] == [-2.0]


def test_a_token_across_a_stop_boundary_is_reported_whole() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["bc"])
    answer = collect([*pipeline.feed(words.id(b"abcd"), Logprob(-1.0)), *pipeline.finish("stop")])
    assert answer.content == "a"
    assert [(entry.token, entry.data) for entry in answer.logprobs] == [("abcd", b"abcd")]


def test_no_logprobs_of_hidden_tokens_and_reasoning() -> None:
    words = vocabulary()
    items: list[Item] = [OPEN, b"why", CLOSE, b"yes", EOS]
    for replay in replays(items, words, lambda: Pipeline(words, reasoning=thinking())):
        assert b"".join(entry.data for entry in replay.entries()) == b"yes"


def test_alternatives_give_exact_bytes_and_readable_text() -> None:
    words = vocabulary()
    half = words.id(b"\xf0\x9f")
    pipeline = Pipeline(words)
    [_, delta] = pipeline.feed(words.id(b"a"), Logprob(-0.5, ((half, -1.0), (EOS, -2.0))))
    assert isinstance(delta, LogprobDelta)
    assert delta.entries[0].top == (TopLogprob("�", -1.0, b"\xf0\x9f"), TopLogprob("<eos>", -2.0, b"<eos>"))


def test_a_failed_request_still_shows_what_was_held() -> None:
    words = vocabulary()
    pipeline = Pipeline(words, stop=["abc"])
    assert pipeline.feed(words.id(b"ab")) == []
    assert pipeline.flush() == [TextDelta("ab")]


@few
@given(st.text(max_size=30))
def test_real_vocabularies_every_token_one_by_one(text: str) -> None:
    for tokenizer in (small.byte_level(), small.llama2(), small.metaspace("first"), small.metaspace("always")):
        ids = tokenizer.encode(text)
        pipeline = Pipeline(tokenizer)
        answer = collect([event for id in ids for event in pipeline.feed(id)] + pipeline.finish("eos"))
        assert answer.content == tokenizer.decode(ids)


def test_an_answer_loses_the_leading_space_and_a_continuation_keeps_it() -> None:
    tokenizer = small.llama2()
    ids = tokenizer.encode("hello world")
    for continues, expected in ((False, "hello world"), (True, " hello world")):
        pipeline = Pipeline(tokenizer, continues=continues)
        text = collect([event for id in ids for event in pipeline.feed(id)] + pipeline.finish("eos")).content
        assert text == expected
