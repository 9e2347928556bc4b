"""Private characters that stand for control tokens while a template runs.

Unpaired surrogates are used: they are characters to Python and to templates, but no text of a request can hold one
(`unicode_check`), so a mark in a rendered prompt was put there by the template and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dgpp.text.segments import Segment

MASK = "\udfff"  # stands for a character of typed text
END = "\udffe"  # stands where the text of an unfinished last message ends
_FIRST, _LAST = 0xD800, 0xDFFD
_MARKS = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")


class ControlMarks:
    """The marks of a set of control texts. They are assigned as `mark` meets the texts, while a template is loaded;
    the other methods change nothing."""

    def __init__(self, texts: Iterable[str]) -> None:
        ordered = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._mark_of: dict[str, str] = {}
        self._text_of: dict[str, str] = {}
        masked = {character for text in ordered for character in text if not character.isspace()}
        self._mask = str.maketrans(dict.fromkeys(masked, MASK))

    def mark(self, text: str) -> str:
        """`text` with every control token in it as its mark. Raises ValueError when there are no marks left."""
        return self._pattern.sub(lambda found: self._assign(found.group()), text)

    def unmark(self, value: Any) -> Any:
        """A string, or a list or tuple of strings, with the spelling of the control tokens for their marks.
        Anything else as it is."""
        match value:
            case str():
                return _MARKS.sub(lambda found: self._text_of.get(found.group(), found.group()), value)
            case list() | tuple() if any(isinstance(item, str) and _MARKS.search(item) for item in value):
                return type(value)(self.unmark(item) if isinstance(item, str) else item for item in value)
            case _:
                return value

    def mask(self, text: str) -> str:
        """`text` with the characters that could spell a control token made unreadable; its length is the same."""
        return text.translate(self._mask)

    def segments(self, rendered: str, built: Iterable[tuple[int, int]] = ()) -> list[Segment]:
        """A rendered prompt as its control tokens, those marked and those spelled at `built`, and the text between."""
        result: list[Segment] = []
        at = 0
        for start, end in [
            *sorted([*(found.span() for found in _MARKS.finditer(rendered)), *built]),
            (len(rendered),) * 2,
        ]:
            if at < start:
                result.append(Segment(rendered[at:start]))
            if start < end:
                result.append(Segment(self.unmark(rendered[start:end]), control=True))
            at = end
        return result

    def spelled(self, text: str) -> Iterable[re.Match[str]]:
        """The places where control tokens are spelled out."""
        return self._pattern.finditer(text)

    def _assign(self, text: str) -> str:
        if text not in self._mark_of:
            code = _FIRST + len(self._mark_of)
            if code > _LAST:
                raise ValueError(f"more than {_LAST - _FIRST + 1} different control tokens in one template")
            self._mark_of[text] = chr(code)
            self._text_of[chr(code)] = text
        return self._mark_of[text]
