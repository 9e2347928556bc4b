"""Text in and out: tokenizer, chat template, messages, and the pipeline from generated tokens to events."""

from dgpp.text.events import (
    Answer,
    Call,
    CallArguments,
    CallClosed,
    CallOpened,
    Event,
    Field,
    Finished,
    LogprobDelta,
    LogprobEntry,
    Malformed,
    StopHit,
    TextDelta,
    TokenLogprobs,
    TopLogprob,
    collect,
)
from dgpp.text.message_error import MessageError
from dgpp.text.messages import Message, parse_messages
from dgpp.text.pipeline import Pipeline
from dgpp.text.segments import Segment, joined
from dgpp.text.template import ChatTemplate, TemplateError, TemplateMissing
from dgpp.text.tokenizer import Tokenizer, TokenizerError
from dgpp.text.tools.history import ToolCall
from dgpp.text.unicode_check import surrogate_path

__all__ = [
    "Answer",
    "Call",
    "CallArguments",
    "CallClosed",
    "CallOpened",
    "ChatTemplate",
    "Event",
    "Field",
    "Finished",
    "LogprobDelta",
    "LogprobEntry",
    "Malformed",
    "Message",
    "MessageError",
    "Pipeline",
    "Segment",
    "StopHit",
    "TemplateError",
    "TemplateMissing",
    "TextDelta",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "ToolCall",
    "TopLogprob",
    "collect",
    "joined",
    "parse_messages",
    "surrogate_path",
]
