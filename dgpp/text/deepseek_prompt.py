"""Prompts of DeepSeek-V4 and V4.1, whose checkpoints have an encoder instead of a chat template.

The rules are those of spec/models_deepseek_mimo_flint.md §2.12 and §3.14. Control tokens and markup are control
segments; what people, tools and models wrote is text, whatever it spells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpp.text.messages import Message
from dgpp.text.segments import Segment
from dgpp.text.template import TemplateError
from dgpp.text.tools.dsml import TOKEN, Dsml
from dgpp.text.tools.lark import dumps
from dgpp.text.unicode_check import surrogate_path

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, THINK_END = "<think>", "</think>"

_EFFORT_LINE = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
_BUDGETS = {"minimal": 25, "low": 50, "medium": 62, "high": 75, "xhigh": 100, "max": 100}
_PREAMBLES = {"minimal": "low", "low": "low", "medium": "low", "high": "high", "xhigh": "max", "max": "max"}

_TOOLS_HEAD = """\
## Tools

These functions can be called. A call is written in this form, one invoke for each function and one parameter for each \
argument; strings stand as they are with string="true", everything else is JSON with string="false":
"""
_TOOLS_LIST = "\n\n### Available Tool Schemas\n\n"
_TOOLS_TAIL = "\n\nCall only these functions, with the parameters of their schemas."


@dataclass(frozen=True)
class DeepSeekPrompt:
    """The encoder of one of the two models; it stands where a ChatTemplate does. Safe to use from several threads.

    The texts are model data that a checkpoint's own encoder holds: `tools_texts` are what stands before the list of
    schemas and after it (None: our words), `preambles` what precedes a V4 prompt for the efforts "high" and "max".
    """

    v41: bool = False
    tools_texts: tuple[str, str] | None = None
    preambles: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(control_tokens: Mapping[str, int]) -> DeepSeekPrompt | None:
        """The encoder that a tokenizer with these control tokens goes with; None where it is neither model's."""
        if not {BOS, EOS, USER, ASSISTANT, TOKEN} <= control_tokens.keys():
            return None
        return DeepSeekPrompt(v41=SYSTEM in control_tokens)

    @property
    def reads(self) -> frozenset[str]:
        """The variables that it looks at."""
        thinking = {"enable_thinking", "reasoning_effort", "drop_thinking", "clear_thinking"}
        return frozenset({"messages", "tools", "add_generation_prompt", *thinking})

    @property
    def efforts(self) -> Mapping[str, Any]:
        """The value of `reasoning_effort` for each word of a request."""
        return _BUDGETS if self.v41 else _PREAMBLES

    @property
    def source(self) -> str:
        """The markup that tells the form of its tool calls."""
        return self._calls.segments([])[0].text

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final: bool = False,
    ) -> list[Segment]:
        """The prompt as control tokens and text. Variables: `enable_thinking` (default true), `reasoning_effort` (a
        value of `efforts`, or a word of a request), `drop_thinking` and `clear_thinking`: False keeps the reasoning
        of earlier turns, which tools keep as well.

        Raises TemplateError for a conversation or an effort that the encoding has no form for.
        """
        given = variables or {}
        if (where := surrogate_path([message.for_template() for message in messages], "messages")) is not None:
            raise TemplateError(f"{where} holds an unpaired surrogate, which is not Unicode text")
        thinks = given.get("enable_thinking") is not False
        drops = given.get("drop_thinking") is not False and given.get("clear_thinking") is not False and not tools
        turns = self._turns(messages, bool(tools))
        last = max((at for at, turn in enumerate(turns) if self._is_asked(turn, at)), default=-1)
        out = [Segment(BOS, True)]
        effort = self._effort(given.get("reasoning_effort")) if thinks else ""
        if not self.v41 and effort:
            out.append(Segment(effort))
        if self.v41 and effort and (not turns or turns[0].role != "system"):
            turns.insert(0, _Turn("system", [[]]))
            last += 1
        for at, turn in enumerate(turns):
            follows = turns[at + 1].role if at + 1 < len(turns) else None
            if turn.message is not None:
                ends = continue_final and follows is None
                out += self._assistant(turn.message, thinks and (not drops or at > last), ends)
                continue
            if turn.role == "system":
                out += [Segment(SYSTEM, True)] if self.v41 else []
                out += [Segment(effort)] if self.v41 and effort and at == 0 else []
            else:
                out.append(Segment(USER, True))
            for place, block in enumerate(turn.blocks):
                out += [Segment("\n\n")] if place else []
                out += block
            if turn.role == "system" and at == 0 and tools:
                out += self._tools(tools)
            if self._is_asked(turn, at) and (follows == "assistant" or (follows is None and add_generation_prompt)):
                opens = thinks and (not drops or at >= last)
                out += [Segment(ASSISTANT, True), Segment(THINK if opens else THINK_END, True)]
        return [segment for segment in out if segment.text]

    @property
    def _calls(self) -> Dsml:
        return Dsml(spaced=self.v41)

    def _is_asked(self, turn: _Turn, at: int) -> bool:
        """Whether an assistant's turn is headed by what follows this one."""
        return turn.role == "user" or (self.v41 and turn.role == "system" and at > 0)

    def _effort(self, value: Any) -> str:
        """What the model is told about `reasoning_effort`."""
        words: Mapping[str, Any] = self.efforts
        known = words.get(value) if isinstance(value, str) else value
        if self.v41:
            budget = _BUDGETS["high"] if value is None else known
            if isinstance(budget, int) and not isinstance(budget, bool) and 1 <= budget <= 100:
                return _EFFORT_LINE.format(budget)
        elif value is None or isinstance(known, str):
            return self.preambles.get(known or "", "")
        raise TemplateError(f"There is no effort {value!r}.")

    def _turns(self, messages: Sequence[Message], has_tools: bool) -> list[_Turn]:
        """The messages as turns: those of users and tools that follow each other are one."""
        turns: list[_Turn] = []
        if has_tools and (not messages or messages[0].role != "system"):
            turns.append(_Turn("system", [[]]))
        order: list[str | None] = []  # ids of the calls that are being answered
        for message in messages:
            if not isinstance(message.content, str):
                raise TemplateError("This model takes the results of tools as text.")
            if message.role == "assistant":
                order = [call.id for call in message.tool_calls]
                turns.append(_Turn("assistant", [], message))
            elif message.role == "system":
                turns.append(_Turn("system", [[Segment(message.content)]]))
            else:
                if not turns or turns[-1].role != "user":
                    turns.append(_Turn("user", []))
                turns[-1].add(message, order)
        return turns

    def _assistant(self, message: Message, keeps: bool, ends: bool) -> list[Segment]:
        """What the assistant said, behind its header, and its EOS unless the prompt `ends` within it."""
        out = [Segment(message.reasoning or ""), Segment(THINK_END, True)] if keeps else []
        out.append(Segment(str(message.content)))
        if message.tool_calls:
            out += self._calls.segments((call.name, call.arguments) for call in message.tool_calls)
        return out if ends else [*out, Segment(EOS, True)]

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> list[Segment]:
        lines = "\n".join(dumps(_schema(tool["function"])) for tool in tools)
        if self.tools_texts is not None:
            before, after = self.tools_texts
            return [Segment(f"\n\n{before}", True), Segment(lines), Segment(after, True)]
        form = self._calls.segments([("NAME", {"KEY": "VALUE"})])
        return [
            *(Segment(f"\n\n{_TOOLS_HEAD}"), Segment("".join(part.text for part in form)[2:], True)),
            *(Segment(_TOOLS_LIST), Segment(lines), Segment(_TOOLS_TAIL)),
        ]


@dataclass
class _Turn:
    """A system, user or assistant turn: blocks with a blank line between them, or the assistant's message."""

    role: str
    blocks: list[list[Segment]]
    message: Message | None = None
    results: list[tuple[int, int]] = field(default_factory=list)  # of the results: rank of the call, place of the block

    def add(self, message: Message, order: Sequence[str | None]) -> None:
        """One more message of a user or tool. Results of tools stand in the order of their calls."""
        text = Segment(str(message.content))
        if message.role == "user":
            self.blocks.append([text])
            return
        id = message.tool_call_id
        self.results.append((order.index(id) if id in order else len(order), len(self.blocks)))
        self.blocks.append([Segment("<tool_result>", True), text, Segment("</tool_result>", True)])
        places = [place for _, place in self.results]
        ranked = sorted(self.results, key=lambda result: result[0])
        moved = [self.blocks[place] for _, place in ranked]
        for place, block in zip(places, moved, strict=True):
            self.blocks[place] = block
        self.results = [(rank, place) for (rank, _), place in zip(ranked, places, strict=True)]


def _schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function as the model is shown it: with its qualified name, and its namespace's description before its own."""
    namespace = function.get("namespace")
    if not namespace:
        return function
    name, about = (
        (namespace, "") if isinstance(namespace, str) else (namespace.get("name"), namespace.get("description"))
    )
    schema = {key: value for key, value in function.items() if key != "namespace"}
    schema["name"] = f"{name}::{function['name']}"
    if about:
        schema["description"] = "\n".join(filter(None, (about, function.get("description"))))
    return schema
