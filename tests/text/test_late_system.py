"""Instructions in the midst of a conversation (case T3)."""

from __future__ import annotations

from dgpp.text.late_system import folded
from dgpp.text.messages import Message, parse_messages


def conversation(*turns: tuple[str, str]) -> list[Message]:
    return parse_messages([{"role": role, "content": content} for role, content in turns])


def said(messages: list[Message] | None) -> list[tuple[str, object]] | None:
    return None if messages is None else [(message.role, message.content) for message in messages]


def test_T3_nothing_to_fold() -> None:
    assert folded(conversation(("system", "a"), ("developer", "b"), ("user", "hi"))) is None
    assert folded(conversation(("user", "hi"))) is None


def test_T3_a_late_instruction_comes_before_the_text_of_the_next_user_message() -> None:
    late = conversation(
        ("user", "hi"), ("assistant", "x"), ("system", "reminder"), ("developer", "two"), ("user", "go")
    )
    assert said(folded(late)) == [("user", "hi"), ("assistant", "x"), ("user", "reminder\n\ntwo\n\ngo")]


def test_T3_without_a_user_message_after_it_is_one_of_its_own() -> None:
    late = conversation(("system", "first"), ("user", "hi"), ("system", "a"), ("assistant", "x"), ("system", "b"))
    assert said(folded(late)) == [
        ("system", "first"),
        ("user", "hi"),
        ("user", "a"),
        ("assistant", "x"),
        ("user", "b"),
    ]
