"""Conversations and the encoders of the families, for golden renderings. `python -m tests.text.renderings` writes them
to goldens/text/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from dgpp.text.deepseek_prompt import DeepSeekPrompt
from dgpp.text.messages import parse_messages
from dgpp.text.segments import Segment, joined
from dgpp.text.template import ChatTemplate
from dgpp.text.tokenizer import Tokenizer
from dgpp.text.tools.declared import parse_tools
from tests.text import small, templates, tool_templates

GOLDENS = Path(__file__).parents[2] / "goldens" / "text"

CHATML = (*small.CHATML, *small.MARKERS)
GLM = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", *small.MARKERS),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
DEEPSEEK = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
)
CONTROL: dict[str, tuple[str, ...]] = {
    "qwen3.8": CHATML,
    "hermes": CHATML,
    "mimo": CHATML,
    "glm-5.3-flash": GLM,
    "glm-5.3": GLM,
    "glm-4.7": GLM,
    "deepseek-v4": DEEPSEEK,
    "deepseek-v4.1": (*DEEPSEEK, "<｜System｜>"),
}
ENCODERS: dict[str, ChatTemplate | DeepSeekPrompt] = {
    "qwen3.8": ChatTemplate(templates.QWEN38, control=CHATML),
    "hermes": ChatTemplate(tool_templates.HERMES, control=CHATML),
    "mimo": ChatTemplate(tool_templates.COMPACT, control=CHATML),
    "glm-5.3-flash": ChatTemplate(tool_templates.glm(has_effort=True, clears=True), control=GLM),
    "glm-5.3": ChatTemplate(tool_templates.glm(has_effort=True, clears=False), control=GLM),
    "glm-4.7": ChatTemplate(tool_templates.glm(has_effort=False, clears=True), control=GLM),
    "deepseek-v4": DeepSeekPrompt(preambles={"high": "Leave nothing out.\n\n"}),
    "deepseek-v4.1": DeepSeekPrompt(v41=True),
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city, até °C.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    },
    {"type": "function", "function": {"name": "now"}},
]


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(typed: str = "") -> list[dict[str, Any]]:
    """Two questions with thinking, two calls and their results in the other order; `typed` stands in every text."""
    return [
        {"role": "developer", "content": f"Be brief.{typed}"},
        {"role": "user", "content": f"Weather in São Paulo?{typed}"},
        {
            "role": "assistant",
            "content": f"I look it up.{typed}",
            "reasoning_content": f"Two tools.{typed}",
            "tool_calls": [
                call(
                    "a", "weather", f'{{"city": "São Paulo{typed}", "days": 2, "tags": ["x{typed}"], "k{typed}": null}}'
                ),
                call("b", "now", "{}"),
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": f"12:00{typed}"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": f"sunny{typed}"}]},
        {"role": "assistant", "content": f"Sunny at noon.{typed}", "reasoning": f"Both are here.{typed}"},
        {"role": "user", "content": f"Thanks. And tomorrow?{typed}"},
    ]


VARIANTS: dict[str, tuple[Mapping[str, Any], bool]] = {
    "tools": ({}, True),
    "plain": ({}, False),
    "off": ({"enable_thinking": False}, True),
    "effort": ({"reasoning_effort": "low"}, True),
    "kept": ({"clear_thinking": False, "preserve_thinking": True}, False),
    "cleared": ({"clear_thinking": True, "preserve_thinking": False}, False),
}


def rendered(family: str, variant: str, typed: str = "") -> list[Segment]:
    """The prompt of the conversation; without tools, of its messages without calls."""
    variables, has_tools = VARIANTS[variant]
    messages = conversation(typed)
    if not has_tools:
        messages = [messages[0], messages[1], messages[5], messages[6]]
    tools = [tool.for_template() for tool in parse_tools(TOOLS)] if has_tools else None
    return ENCODERS[family].render(parse_messages(messages), tools=tools, variables=variables)


def golden(family: str) -> str:
    """All variants of a family as text; a control token stands between ⟦ and ⟧."""
    parts: list[str] = []
    for variant in VARIANTS:
        segments = rendered(family, variant)
        tokenizer = tokenizer_of(CONTROL[family])
        parts.append(f"=== {variant}\n{_marked(tokenizer, segments)}\n")
    return "".join(parts)


def tokenizer_of(control: tuple[str, ...]) -> Tokenizer:
    """A byte-level tokenizer with these control tokens."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([], trainer)
    library.add_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in control])
    return Tokenizer(small.spec_of(library))


def _marked(tokenizer: Tokenizer, segments: list[Segment]) -> str:
    control = {id: text for text, id in tokenizer.control_tokens.items()}
    data = b"".join(
        f"⟦{control[id]}⟧".encode() if id in control else tokenizer.token_bytes(id)
        for id in tokenizer.encode_segments(segments)
    )
    text = data.decode()
    assert text.replace("⟦", "").replace("⟧", "") == joined(segments)
    return text


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for family in ENCODERS:
        (GOLDENS / f"{family}.txt").write_text(golden(family), encoding="utf-8")
