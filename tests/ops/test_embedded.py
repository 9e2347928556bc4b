"""The embedded model can be remade byte for byte, and its tokenizer and template do what they must."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from dgpp.checkpoint.embedded import embedded_path
from dgpp.ops.embedded import CHAT_TEMPLATE, SPECIAL, make_embedded

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(embedded_path() / "tokenizer.json"))


def test_it_is_remade_byte_for_byte(tmp_path: Path) -> None:
    make_embedded(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (embedded_path() / name).read_bytes(), name


def test_it_is_at_most_2_MB() -> None:
    assert sum(path.stat().st_size for path in embedded_path().rglob("*") if path.is_file()) < 2_000_000


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world!",
        "  two  blanks \n\n\ttab",
        "naïve café 日本語 🙂👩‍👩‍👧",
        "\x00\x7f",
        "a" * 1000,
        "Zürich\r\n",
        "",
    ],
)
def test_any_text_survives_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_english_is_shortened_and_special_tokens_are_single(tokenizer: Tokenizer) -> None:
    text = "What is the capital of France? It is Paris, I think."
    assert len(tokenizer.encode(text).ids) < len(text) / 3
    assert [tokenizer.encode(token).ids for token in SPECIAL] == [[0], [1], [2]]


def render(messages: list[dict[str, object]], **variables: object) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.Undefined)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(CHAT_TEMPLATE).render(messages=messages, **variables)


def test_the_template_is_chatml() -> None:
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "tool", "content": "4"},
    ]
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n"
    )
    assert render(messages) == expected
    assert render(messages, add_generation_prompt=True) == expected + "<|im_start|>assistant\n"
    with pytest.raises(jinja2.TemplateError, match="unknown role robot"):
        render([{"role": "robot", "content": "x"}])


@pytest.mark.parametrize("arguments", [{"x": 1}, '{"x": 1}'])
def test_the_template_shows_tools_and_calls(arguments: object) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    text = render(messages, tools=[{"type": "function", "function": {"name": "add"}}])
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n{")
    assert text.count("<|im_start|>system") == 1
    assert '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n' in text
