"""From the messages of a request to the ids of its prompt, as the model's own template writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dgpp.serve.errors import INVALID, ApiError, kind_of
from dgpp.serve.requests.thinking import Controls
from dgpp.text.late_system import folded
from dgpp.text.message_error import MessageError
from dgpp.text.messages import Message, parse_messages
from dgpp.text.reasoning import Markers
from dgpp.text.segments import Segment
from dgpp.text.template import TemplateError
from dgpp.text.tokenizer import Tokenizer
from dgpp.text.tools import Dialect, Tool, dialect_of
from dgpp.text.tools.dsml import Dsml


class Template(Protocol):
    """What writes prompts: a ChatTemplate, or the DeepSeek encoding."""

    @property
    def reads(self) -> frozenset[str]:
        """The variables that it looks at."""

    @property
    def efforts(self) -> Mapping[str, Any]:
        """Its value of `reasoning_effort` for each positive word of a request."""

    @property
    def source(self) -> str:
        """Its text, from which the form of its tool calls is read."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        continue_final: bool = False,
    ) -> list[Segment]:
        """The prompt. Raises TemplateError."""


class Prompts:
    """The prompts of one model. `markers` are those of its reasoning, `controls` what a request may tell the template,
    `dialect` how the model writes tool calls; None, and nothing, where it has none."""

    def __init__(self, tokenizer: Tokenizer, template: Template | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.controls = Controls()
        self.dialect: Dialect | None = None
        self.markers: Markers | None = None
        self.call_openers: frozenset[int] = frozenset()  # control tokens that begin a tool call
        if template is not None:
            self.markers = Markers.of(tokenizer.control_tokens)
            self.controls = Controls(template.reads, template.efforts, self.markers is not None)
            self.dialect = dialect_of(template.source, tokenizer.control_tokens)
        if self.dialect is not None and self.dialect.opener in tokenizer.control_tokens:
            self.call_openers = frozenset({tokenizer.control_tokens[self.dialect.opener]})

    def chat(
        self, messages: list[Any], variables: Mapping[str, Any], tools: Sequence[Tool], continues: bool
    ) -> list[int]:
        """The ids of the prompt for these messages, as a request spells them; `continues` leaves the last one open.

        Raises ApiError.
        """
        if self._template is None:
            raise ApiError(INVALID, "This model has no chat template; use /v1/completions.", "messages")
        try:
            parsed = parse_messages(messages)
        except MessageError as error:
            raise ApiError(kind_of(error.code), str(error), error.param) from None
        if continues and (parsed[-1].role != "assistant" or parsed[-1].tool_calls):
            message = "continue_final_message needs a last message of the assistant, without tool calls."
            raise ApiError(INVALID, message, "continue_final_message")
        prompt = self._tokenizer.encode_segments(self._rendered(parsed, variables, tools, continues))
        if not prompt:
            raise ApiError(INVALID, "These messages make an empty prompt.", "messages")
        return prompt

    def raw(self, text: str) -> list[int]:
        """The ids of a prompt without a template. Raises ApiError."""
        prompt = self._tokenizer.encode(text, prefix=True)
        if not prompt:
            raise ApiError(INVALID, "The prompt has no tokens.", "prompt")
        return prompt

    def _rendered(
        self, messages: list[Message], variables: Mapping[str, Any], tools: Sequence[Tool], continues: bool
    ) -> list[Segment]:
        """The prompt. Where the template refuses an instruction in the midst of a conversation, it is said in the
        user's turn."""
        assert self._template is not None
        listed = [tool.for_template(namespace=isinstance(self.dialect, Dsml)) for tool in tools] or None
        try:
            return self._template.render(messages, tools=listed, variables=variables, continue_final=continues)
        except TemplateError as error:
            late = folded(messages)
            if late is not None:
                try:
                    return self._template.render(late, tools=listed, variables=variables, continue_final=continues)
                except TemplateError:
                    pass  # the first refusal is about what was sent
            raise ApiError(INVALID, str(error), "messages") from None
