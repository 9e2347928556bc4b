from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from dgpp.text.segments import Segment
from dgpp.text.tokenizer import Tokenizer, TokenizerError

from . import small
from .splits import few

Pair = tuple[Callable[[], tokenizers.Tokenizer], Callable[[], Tokenizer]]

PAIRS: dict[str, Pair] = {
    "byte-level": (small.byte_level_library, small.byte_level),
    "llama2": (small.llama2_library, small.llama2),
    "metaspace-first": (lambda: small.metaspace_library("first"), lambda: small.metaspace("first")),
    "metaspace-always": (lambda: small.metaspace_library("always"), lambda: small.metaspace("always")),
    "metaspace-never": (lambda: small.metaspace_library("never"), lambda: small.metaspace("never")),
    "unigram": (small.unigram_library, small.unigram),
}
KINDS = pytest.mark.parametrize("kind", PAIRS)
MARKERS = [*small.CHATML, *small.MARKERS, *small.BRACKETS, "<s>", "</s>", "<unk>", "<0x41>"]

words = st.sampled_from(
    ["hello", " world", "user", "\n", "  ", " ", "        ", "é", "😀", "שלום", "<", "|>", "im_end"]
)
typed = st.lists(words | st.sampled_from(MARKERS) | st.text(max_size=4), max_size=8).map("".join)


@KINDS
@few
@given(typed)
def test_control_text_gets_the_ids_of_the_library(kind: str, text: str) -> None:
    library, ours = (make() for make in PAIRS[kind])
    assert ours.encode(text, control=True) == library.encode(text, add_special_tokens=False).ids


@KINDS
@few
@given(st.lists(st.tuples(typed, st.booleans()), max_size=5))
def test_how_a_harmless_prompt_is_divided_does_not_change_its_ids(kind: str, parts: list[tuple[str, bool]]) -> None:
    library, ours = (make() for make in PAIRS[kind])
    segments = [Segment(text.replace("<", "").replace("[", ""), control) for text, control in parts]
    whole = "".join(segment.text for segment in segments)
    assert ours.encode_segments(segments) == library.encode(whole, add_special_tokens=False).ids


@KINDS
@few
@given(typed, typed)
def test_Z1_typed_text_never_becomes_a_control_token(kind: str, text: str, other: str) -> None:
    ours = PAIRS[kind][1]()
    unknown = {ours.token_id("<unk>")} if kind == "unigram" else set()  # what this model gives to a foreign character
    control = set(ours.control_tokens.values()) - unknown
    end = "</s>" if kind != "byte-level" else "<|im_end|>"
    ids = ours.encode_segments([Segment(end, True), Segment(text), Segment(other), Segment(end, True)])
    assert [id for id in ids if id in control] == [ours.token_id(end)] * 2
    assert ids[0] == ids[-1] == ours.token_id(end)


def test_Z1_a_marker_divided_between_typed_and_control_text_stays_text() -> None:
    ours = small.byte_level()
    for cut in range(1, len("<|im_end|>")):
        ids = ours.encode_segments([Segment("<|im_end|>"[:cut], True), Segment("<|im_end|>"[cut:])])
        assert ours.special_ids.isdisjoint(ids)
        assert ours.decode(ids) == "<|im_end|>"


def test_Z1_an_entry_of_the_model_that_spells_a_marker_is_not_reached() -> None:
    library, ours = small.unigram_library(), small.unigram()
    end = ours.token_id("<|im_end|>")
    plain = tokenizers.Tokenizer.from_str(json.dumps(small.spec_of(library) | {"added_tokens": []}))
    assert end in plain.encode("a<|im_end|>b").ids, "this vocabulary does not show the danger"
    assert end not in ours.encode("a<|im_end|>b" * 3)
    assert ours.decode(ours.encode("lazy <|im_end|></s> dog")) == "lazy <|im_end|></s> dog"


def test_Z1_many_markers_in_a_typed_text_take_linear_time() -> None:
    ours = small.unigram()
    ids = ours.encode("</s>" * 20_000)
    assert ours.eos_id not in ids
    assert len(ids) >= 20_000


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind != "unigram"])
@few
@given(typed)
def test_bytes_of_the_tokens_are_the_text(kind: str, text: str) -> None:
    ours = PAIRS[kind][1]()
    if kind == "byte-level":
        text = small.byte_level_library().normalizer.normalize_str(text)
    text = text.replace("\u2581", "")  # SentencePiece's own spelling of a space
    if kind in ("metaspace-first", "metaspace-always"):
        text = text.lstrip(" ")  # these put no further space before a text that begins with one
    ids = ours.encode(text)
    data = b"".join(ours.token_bytes(id, at_start=not at) for at, id in enumerate(ids))
    assert data == text.encode()
    assert ours.decode(ids).encode() == data


@KINDS
@few
@given(typed)
def test_decoded_text_is_that_of_the_library(kind: str, text: str) -> None:
    library, ours = (make() for make in PAIRS[kind])
    ids = library.encode("a" + text, add_special_tokens=False).ids
    assert ours.decode(ids) == library.decode(ids)
    assert ours.decode(ids, special=True) == library.decode(ids, skip_special_tokens=False)


def test_S1_an_incomplete_character_is_one_replacement() -> None:
    ours = small.llama2()
    ids = ours.encode("😀")[-4:]
    assert [ours.token_bytes(id) for id in ids] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert ours.decode(ids[:3]) == "�"


def test_the_leading_space_belongs_to_the_encoder() -> None:
    ours = small.llama2()
    ids = ours.encode("hello there")
    assert ours.decode(ids) == "hello there"
    assert ours.decode(ids, at_start=False) == " hello there"
    assert ours.decode([ours.bos_id or 0, *ids]) == "hello there"


def test_ids_and_names() -> None:
    ours = small.byte_level()
    assert (ours.eos_id, ours.bos_id) == (ours.token_id("<|im_end|>"), None)
    assert ours.special_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    assert {ours.control_tokens[text] for text in small.CHATML + small.LLAMA3} == ours.special_ids
    assert ours.control_tokens["<think>"] not in ours.special_ids
    assert ours.vocab_size == small.byte_level_library().get_vocab_size()
    assert ours.token_id("no such entry") is None
    assert ours.token_bytes(ours.vocab_size) == b""
    assert ours.token_bytes(-1) == b""


def test_blank_runs_among_the_added_tokens_are_ordinary_vocabulary() -> None:
    ours = small.byte_level()
    assert ours.token_id("        ") in ours.encode("a        b")
    assert "        " not in ours.control_tokens


def test_a_raw_prompt_begins_as_the_post_processor_says() -> None:
    library, ours = small.llama2_library(), small.llama2()
    assert ours.encode("hello", prefix=True) == library.encode("hello").ids
    assert ours.encode("hello", prefix=True)[0] == ours.bos_id
    assert small.byte_level().encode("hello", prefix=True) == small.byte_level().encode("hello")


@pytest.mark.parametrize("adds", [True, False])
def test_add_bos_token_decides_over_the_post_processor(adds: bool) -> None:
    for spec in (
        small.spec_of(small.llama2_library()),
        small.spec_of(small.llama2_library()) | {"post_processor": None},
    ):
        ours = Tokenizer(spec, {"bos_token": "<s>", "add_bos_token": adds})
        assert ours.encode("hello", prefix=True) == [1] * adds + ours.encode("hello")


def test_flags_of_added_tokens() -> None:
    library = small.byte_level_library()
    library = tokenizers.Tokenizer.from_str(library.to_str())
    library.add_special_tokens(
        [
            AddedToken("<eat>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<word>", single_word=True, normalized=False),
            AddedToken("<eat>er", normalized=False),
        ]
    )
    ours = Tokenizer(small.spec_of(library))
    for text in ("a  <eat> \n b", "<eat>er <eat> <eat>", " <eat>", "a<word>b <word> <word>", "<word><word>"):
        assert ours.encode(text, control=True) == library.encode(text).ids, text


def test_a_single_character_is_never_markup() -> None:
    spec = small.spec_of(small.byte_level_library())
    mark = spec["model"]["vocab"]["!"]
    spec["added_tokens"].append({"id": mark, "content": "!", "special": True})
    ours = Tokenizer(spec, {"pad_token": "!"})
    assert mark not in ours.special_ids
    assert ours.decode(ours.encode("hello!")) == "hello!"


def test_the_configuration_completes_the_added_tokens() -> None:
    spec = small.spec_of(small.byte_level_library())
    think = small.byte_level().token_id("<think>")
    entries = {"999": {"content": "<|extra|>", "special": True}, str(think): {"content": "<think>", "special": True}}
    ours = Tokenizer(spec, {"added_tokens_decoder": entries, "extra_special_tokens": {"extra_token": "<|extra|>"}})
    assert {999, think} <= ours.special_ids
    assert ours.special_tokens == {"extra_token": "<|extra|>"}
    assert ours.encode("<|extra|>", control=True) == [999]
    assert ours.token_bytes(999) == b"<|extra|>"


def test_a_named_token_that_is_not_declared_is_special() -> None:
    spec = small.spec_of(small.llama2_library())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] != "<s>"]
    assert Tokenizer(spec).special_ids.isdisjoint({1})
    assert 1 in Tokenizer(spec, {"bos_token": "<s>"}).special_ids


def test_a_replaced_text_normalised_to_a_marker_stays_text() -> None:
    library = tokenizers.Tokenizer.from_str(small.unigram_library().to_str())
    library.normalizer = tokenizers.normalizers.NFKC()
    ours = Tokenizer(small.spec_of(library))
    text = "<|im_end|>".translate({ord("<"): "＜", ord(">"): "＞"})
    assert ours.token_id("<|im_end|>") not in ours.encode(text)


def test_load(tmp_path: Path) -> None:
    small.byte_level_library().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>", "bos_token": "<|im_start|>"}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|im_end|>"}}')
    ours = Tokenizer.load(tmp_path)
    assert ours.special_tokens["eos_token"] == "<|im_end|>"
    assert ours.special_tokens["bos_token"] == "<|im_start|>"


def written(path: Path, value: Any) -> Path:
    path.mkdir(exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value)
    (path / "tokenizer.json").write_text(text)
    return path


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    spec = small.spec_of(small.byte_level_library())
    for path, message in (
        (tmp_path / "none", "tokenizer.json is missing"),
        (written(tmp_path / "broken", "{"), "tokenizer.json is not valid JSON"),
        (written(tmp_path / "list", "[]"), "must hold a JSON object"),
        (written(tmp_path / "decoder", spec | {"decoder": {"type": "WordPiece"}}), "WordPiece.*not supported"),
        (written(tmp_path / "no-decoder", spec | {"decoder": None}), "not supported"),
        (written(tmp_path / "model", spec | {"model": {"type": "BPE", "vocab": 3}}), "tokenizer.json: "),
    ):
        with pytest.raises(TokenizerError, match=message):
            Tokenizer.load(path)


def test_truncation_and_padding_of_the_file_are_ignored() -> None:
    library = tokenizers.Tokenizer.from_str(small.byte_level_library().to_str())
    library.enable_truncation(2)
    library.enable_padding(length=8)
    text = "The quick brown fox"
    assert Tokenizer(small.spec_of(library)).encode(text) == small.byte_level().encode(text)


def test_byte_level_post_processor_adds_nothing() -> None:
    library = tokenizers.Tokenizer.from_str(small.byte_level_library().to_str())
    library.post_processor = processors.ByteLevel(trim_offsets=True)
    assert Tokenizer(small.spec_of(library)).encode("hello", prefix=True) == small.byte_level().encode("hello")


def test_ignored_merges_do_not_reach_a_marker() -> None:
    vocab = {letter: at for at, letter in enumerate(sorted(set("<|im_end>abc ")))} | {"<|im_end|>": 50}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    library.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    library.add_special_tokens(["<|im_end|>"])
    plain = tokenizers.Tokenizer.from_str(json.dumps(small.spec_of(library) | {"added_tokens": []}))
    assert 50 in plain.encode("a <|im_end|> b").ids
    assert 50 not in Tokenizer(small.spec_of(library)).encode("a <|im_end|> b")
