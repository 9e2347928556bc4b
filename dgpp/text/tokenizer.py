"""Text to token ids and back, on the `tokenizers` library.

Added tokens ("<|im_end|>", "<think>", ...) are matched here and not by the library, because only we know which part
of a prompt was typed by somebody: there, their spelling is text like any other. Everything between two control tokens
is encoded in one piece, typed or not, so a harmless prompt gets exactly the ids that the library would give it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from dgpp.text.added import AddedToken, AddedTokenMatcher, Match
from dgpp.text.plain import Place, plain_tokenizers, prompt_prefix
from dgpp.text.segments import Segment
from dgpp.text.token_decoder import TokenDecoder, read_decoder

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class TokenizerError(Exception):
    """A tokenizer that cannot be read; the message names the file and what to do."""


class Tokenizer:
    """The vocabulary of a model: ids of text, bytes of ids.

    Safe to use from several threads.
    """

    def __init__(self, spec: dict[str, Any], config: dict[str, Any] | None = None) -> None:
        """`spec` is the content of tokenizer.json, `config` that of tokenizer_config.json.

        Raises ValueError saying what is not supported.
        """
        config = config or {}
        self._decoder: TokenDecoder = read_decoder(spec.get("decoder"))
        self._plain = plain_tokenizers(spec)
        model = self._plain["first"]
        self.special_tokens: Mapping[str, str | list[str]] = _named_tokens(config)
        """The named special tokens as templates see them: `bos_token`, `eos_token`, ..."""

        added = _added_tokens(spec, config, self.special_tokens, model)
        self._added = {token.id: token for token in added}
        self._control = AddedTokenMatcher(token for token in added if not token.is_whitespace)
        self._blanks = AddedTokenMatcher(token for token in added if token.is_whitespace)
        unknown = _unknown_id(spec["model"], model)
        self._control_ids = frozenset(token.id for token in self._control.tokens.values()) - {unknown}
        self._bytes: dict[int, bytes] = {}

        self.special_ids: frozenset[int] = frozenset(token.id for token in added if token.special)
        """Ids that decoded text does not show."""
        self.vocab_size: int = 1 + max([*model.get_vocab(with_added_tokens=False).values(), *self._added])
        """One more than the highest id. A model's logits may be wider (padding)."""
        self.bos_id: int | None = self._named_id("bos_token")
        self.eos_id: int | None = self._named_id("eos_token")
        self._prefix = prompt_prefix(spec.get("post_processor"))
        if self.bos_id is not None and isinstance(config.get("add_bos_token"), bool):
            others = [id for id in self._prefix if id != self.bos_id]
            self._prefix = [self.bos_id, *others] if config["add_bos_token"] else others

    @staticmethod
    def load(directory: str | Path) -> Tokenizer:
        """The tokenizer of a model directory: tokenizer.json, with tokenizer_config.json and special_tokens_map.json
        where present.

        Raises TokenizerError.
        """
        directory = Path(directory)
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(
                f"{path} is missing: the model directory needs the tokenizer that it was published with"
            )
        spec = read_object(path)
        config = read_object(directory / "special_tokens_map.json") | read_object(directory / "tokenizer_config.json")
        try:
            return Tokenizer(spec, config)
        except Exception as error:  # the library raises plain Exception for a file that it cannot use
            raise TokenizerError(f"{path}: {error}") from error

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Texts that stand for one token in control text, with their ids. In typed text they are just text."""
        return {text: token.id for text, token in self._control.tokens.items()}

    def token_id(self, text: str) -> int | None:
        """The id of a vocabulary entry or added token by its exact text, or None."""
        if (token := self._control.tokens.get(text) or self._blanks.tokens.get(text)) is not None:
            return token.id
        id: int | None = self._plain["first"].token_to_id(text)
        return id

    def token_bytes(self, id: int, *, at_start: bool = False) -> bytes:
        """The bytes that a token adds to a text; none for an id without an entry.

        Special tokens give their spelling: whether they are shown is another question (`special_ids`). `at_start`
        asks for the bytes at the beginning of a text, where SentencePiece-like decoders drop one space.
        """
        data = self._bytes.get(id)
        if data is None:
            data = self._bytes[id] = self._lookup(id)
        if at_start and self._decoder.drops_leading_space and id not in self._added:
            return data.removeprefix(b" ")
        return data

    def encode(self, text: str, *, control: bool = False, prefix: bool = False) -> list[int]:
        """The ids of `text`. Spellings of added tokens are read as these tokens only when `control`. `prefix` puts
        before it what the model expects at the start of a raw prompt (usually BOS, often nothing)."""
        ids = self.encode_segments([Segment(text, control)])
        return [*self._prefix, *ids] if prefix else ids

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]:
        """The ids of a prompt made of control and typed text."""
        segments = list(segments)
        text = "".join(segment.text for segment in segments)
        ids: list[int] = []
        at = start = 0
        for segment in segments:
            end = start + len(segment.text)
            for match in self._control.find(text, start, end) if segment.control else ():
                ids += self._encode_run(text, at, max(at, match.start))
                ids.append(match.id)
                at = match.end
            start = end
        return ids + self._encode_run(text, at, len(text))

    def decode(self, ids: Iterable[int], *, at_start: bool = True, special: bool = False) -> str:
        """The text of `ids`, invalid UTF-8 replaced; special tokens are shown only when `special`."""
        data = bytearray()
        for id in ids:
            if special or id not in self.special_ids:
                data += self.token_bytes(id, at_start=at_start)
                at_start = at_start and not self.token_bytes(id)
        return data.decode("utf-8", "replace")

    def _named_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return self.token_id(text) if isinstance(text, str) else None

    def _lookup(self, id: int) -> bytes:
        if id in self._added:
            return self._added[id].text.encode("utf-8")
        token = self._plain["first"].id_to_token(id) if id >= 0 else None
        return b"" if token is None else self._decoder.bytes_of(token)

    def _encode_run(self, text: str, start: int, end: int) -> list[int]:
        """The ids of `text[start:end]`, which holds no control token."""
        ids: list[int] = []
        at = start
        for match in [*self._blanks.find(text, start, end), Match(end, end, -1)]:
            if at < match.start:
                ids += self._encode_plain(text[at : match.start], "first" if at == 0 else "later")
            if match.id >= 0:
                ids.append(match.id)
            at = match.end
        return ids

    def _encode_plain(self, text: str, place: Place) -> list[int]:
        """The ids that the model alone gives to a text.

        Some vocabularies hold the spelling of a control token as an entry that plain text can reach. Such a text is
        cut within each of these spellings, and its parts are encoded by themselves.
        """
        encoding = self._plain[place].encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._control_ids.isdisjoint(ids):
            return ids
        spans = zip(ids, encoding.offsets, strict=True)
        cuts = [start + 1 for id, (start, end) in spans if id in self._control_ids and end - start > 1]
        if not cuts:
            return ids
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        first, *rest = parts
        return self._encode_plain(first, place) + [id for part in rest for id in self._encode_plain(part, "inner")]


def _unknown_id(model_spec: dict[str, Any], model: tokenizers.Tokenizer) -> int | None:
    """The id that the model gives to text it does not know: plain text may reach it."""
    if isinstance(text := model_spec.get("unk_token"), str):
        id: int | None = model.token_to_id(text)
        return id
    return model_spec.get("unk_id")


def _named_tokens(config: dict[str, Any]) -> dict[str, str | list[str]]:
    """The special tokens that the configuration names, as text."""
    extra = config.get("extra_special_tokens")
    named = {name: config.get(name) for name in _NAMED} | (extra if isinstance(extra, dict) else {})
    result: dict[str, str | list[str]] = {name: text for name, value in named.items() if (text := _text(value))}
    if isinstance(additional := config.get("additional_special_tokens"), list):
        result["additional_special_tokens"] = [text for value in additional if (text := _text(value))]
    return result


def _text(token: Any) -> str | None:
    """The text of a token given as a string or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _added_tokens(
    spec: dict[str, Any],
    config: dict[str, Any],
    named: Mapping[str, str | list[str]],
    model: tokenizers.Tokenizer,
) -> list[AddedToken]:
    """The added tokens of tokenizer.json, as tokenizer_config.json overrides and completes them.

    A single character that is also an entry of the model is left out: a published tokenizer that declares "!" as its
    padding token does not mean that an exclamation mark is markup.
    """
    tokens = {entry["id"]: AddedToken.read(entry, entry["id"]) for entry in spec.get("added_tokens") or ()}
    ids = {token.text: id for id, token in tokens.items()}
    for key, entry in (config.get("added_tokens_decoder") or {}).items():
        id = ids.get(entry["content"], int(key))
        tokens[id] = AddedToken.read(entry, id)
        ids[entry["content"]] = id
    for text in [text for value in named.values() for text in ([value] if isinstance(value, str) else value)]:
        if text not in ids and (id := model.token_to_id(text)) is not None:
            tokens[id] = AddedToken(id, text, special=True)
    return [token for token in tokens.values() if len(token.text) > 1 or model.token_to_id(token.text) != token.id]


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold a JSON object")
    return value
