"""Instructions in the midst of a conversation, for templates that know only one system message, the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dgpp.text.messages import Message


def folded(messages: Sequence[Message]) -> list[Message] | None:
    """The conversation with every system message but a first one said by the user: before the text of the user's next
    message, or as a message of its own where another role follows. None when there is no such system message."""
    out: list[Message] = []
    waiting: list[str] = []
    late = False
    for place, message in enumerate(messages):
        if message.role == "system" and place:
            waiting.append(str(message.content))
            late = True
            continue
        if waiting and message.role == "user":
            message = replace(message, content="\n\n".join([*waiting, str(message.content)]))
        elif waiting:
            out.append(Message("user", "\n\n".join(waiting)))
        waiting = []
        out.append(message)
    if waiting:
        out.append(Message("user", "\n\n".join(waiting)))
    return out if late else None
