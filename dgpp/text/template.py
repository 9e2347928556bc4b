"""Chat templates: messages to a prompt in which typed text stays text.

A prompt's control tokens ("<|im_start|>") and what people and tools typed meet in one string, and nothing in it says
which is which. Guarding the typed text (marking it, escaping it) breaks templates that trim, split or compare it, and
fails open when one joins it in an unforeseen way. So the other side is marked: when the template is loaded, each
control token in its own text and string constants, and in the special tokens handed to it, is replaced by a private
character that no request can contain (`control_marks`). Typed text is rendered as it is. In the result a private
character is a control token; everything else, whatever it spells, is text. A template may do with typed text what it
likes: nothing that it can compute from it is a control token.

Two things keep templates working as written. Where they look for a control token in a text, they get its spelling
(`sandbox`). And some build a token from pieces ('<|' + message.role + '|>'): a spelled-out token in the result is
accepted when a second rendering, with the typed text made unreadable, shows the same token at the same place in an
otherwise equal prompt, so that no typed character took part. When that second rendering differs, it stays text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from dgpp.text.control_marks import END, MASK, ControlMarks
from dgpp.text.efforts import EFFORTS, VARIABLE, effort_values, efforts_known
from dgpp.text.messages import Message
from dgpp.text.sandbox import MAX_CHARACTERS, MAX_STEPS, TemplateSandbox
from dgpp.text.segments import Segment
from dgpp.text.template_marks import MarkControl
from dgpp.text.template_reads import variables_read
from dgpp.text.tokenizer import Tokenizer
from dgpp.text.unicode_check import surrogate_path

logger = logging.getLogger(__name__)

_KINDS = frozenset({"system", "user", "assistant", "tool", "function"})
_WORDS = {"role": _KINDS, "type": _KINDS, VARIABLE: frozenset(EFFORTS)}
_KEYS = frozenset(
    {"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"}
    | {"id", "type", "function", "arguments", "description", "parameters"}
)


class TemplateError(Exception):
    """A chat template that cannot be used, or that refuses these messages; the text says why."""


class TemplateMissing(TemplateError):
    """The model directory has no chat template."""


class ChatTemplate:
    """A model's chat template, compiled. Safe to use from several threads.

    `reads` are the names of the variables that it looks at, `efforts` its values of `reasoning_effort` for the words
    of requests, `source` is the text of all templates.
    """

    def __init__(
        self,
        sources: str | Mapping[str, str],
        *,
        control: Iterable[str] = (),
        special_tokens: Mapping[str, str | list[str]] | None = None,
        max_characters: int = MAX_CHARACTERS,
        max_steps: int = MAX_STEPS,
    ) -> None:
        """`sources` is a template or several by name, of which "tool_use" serves requests with tools and "default"
        all others. `control` are the texts of control tokens, `special_tokens` the variables `bos_token`, ...

        Raises TemplateError when one does not compile.
        """
        self._marks = ControlMarks(control)
        self._sandbox = TemplateSandbox(self._marks, max_characters, max_steps)
        named = {"default": sources} if isinstance(sources, str) else sources
        reads: set[str] = set()
        efforts: set[str] = set()
        self._templates = {name: self._compile(name, source, reads, efforts) for name, source in named.items()}
        self.reads = frozenset(reads)
        self.efforts: Mapping[str, Any] = effort_values(frozenset(efforts))
        self.source = "\n".join(named.values())
        self._special = {
            name: self._marks.mark(text) if isinstance(text, str) else [self._marks.mark(item) for item in text]
            for name, text in (special_tokens or {}).items()
        }

    @staticmethod
    def load(directory: str | Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The chat template of a model directory: chat_template.jinja (and additional_chat_templates/*.jinja), or
        `chat_template` in chat_template.json or tokenizer_config.json, a string or a list of named ones.

        Raises TemplateMissing when there is none and TemplateError when it cannot be used.
        """
        sources = _find(Path(directory))
        if not sources:
            raise TemplateMissing(
                f"{directory} has no chat template: chat needs chat_template.jinja, or chat_template in"
                " tokenizer_config.json; raw completions work without"
            )
        return ChatTemplate(sources, control=tokenizer.control_tokens, special_tokens=tokenizer.special_tokens)

    @staticmethod
    def load_file(path: str | Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The chat template in one file, in place of a model's own. Raises TemplateError when it cannot be used."""
        try:
            source = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"the chat template {path} cannot be read: {error}") from error
        return ChatTemplate(source, control=tokenizer.control_tokens, special_tokens=tokenizer.special_tokens)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final: bool = False,
        now: datetime | None = None,
    ) -> list[Segment]:
        """The prompt as control tokens and text; `variables` are further names that the template may read.

        With `continue_final` it ends where the content of the last message does, and there is no generation prompt.
        Raises TemplateError with the template's own message when it refuses the conversation.
        """
        template = self._templates.get("tool_use") if tools else None
        template = template or self._templates.get("default")
        if template is None:
            raise TemplateError(f"no template is named default: {', '.join(self._templates)}")
        now = now or datetime.now()
        typed = {
            **(variables or {}),
            "messages": [message.for_template() for message in messages],
            "tools": [dict(tool) for tool in tools] if tools else None,
        }
        fixed = {
            **self._special,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not continue_final,
            "strftime_now": lambda form: now.strftime(form),
        }
        if (where := surrogate_path(typed, "")) is not None:  # it would pass for a mark
            raise TemplateError(f"{where} holds an unpaired surrogate, which is not Unicode text")
        if continue_final:
            typed["messages"][-1]["content"] += END
        rendered = self._run(template, {**fixed, **typed})
        if continue_final:
            rendered, *rest = rendered.split(END)
            if len(rest) != 1:
                raise TemplateError("the chat template does not show the last message as it is: it cannot be continued")
        spelled = [found.span() for found in self._marks.spelled(rendered)]
        return self._marks.segments(rendered, self._built(spelled, rendered, template, fixed, typed))

    def _compile(self, name: str, source: str, reads: set[str], efforts: set[str]) -> jinja2.Template:
        """The template `name`; the variables that it looks at are put into `reads`, the efforts it knows into
        `efforts`."""
        try:
            parsed = self._sandbox.parse(source, name)
            efforts |= efforts_known(parsed)
            tree = MarkControl(self._marks).visit(parsed)
            reads |= variables_read(tree)
            code = self._sandbox.compile(tree, name)
            return jinja2.Template.from_code(self._sandbox, code, self._sandbox.make_globals(None))
        except (jinja2.TemplateError, ValueError, RecursionError) as error:
            raise TemplateError(f"the chat template {name!r} does not compile: {error}") from error

    def _run(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        self._sandbox.begin()
        try:
            return template.render(variables)
        except jinja2.TemplateError as error:
            raise TemplateError(self._marks.unmark(error.message or type(error).__name__)) from error
        except Exception as error:  # whatever Python raises at a template's expression: no words for a client
            logger.warning("the chat template failed", exc_info=error)
            raise TemplateError("the chat template cannot render this conversation") from error

    def _built(
        self,
        spelled: list[tuple[int, int]],
        rendered: str,
        template: jinja2.Template,
        fixed: Mapping[str, Any],
        typed: Mapping[str, Any],
    ) -> list[tuple[int, int]]:
        """Those of the control tokens `spelled` out in `rendered` that the template put together without typed text."""
        if not spelled:
            return []
        try:
            masked = {name: _masked(value, self._marks, name) for name, value in typed.items()}
            proof = self._run(template, {**fixed, **masked})
        except (TemplateError, RecursionError):
            return []
        proof = proof.partition(END)[0]
        if len(proof) != len(rendered) or any(b not in (a, MASK) for a, b in zip(rendered, proof, strict=True)):
            return []
        return [(start, end) for start, end in spelled if MASK not in proof[start:end]]


def _masked(value: Any, marks: ControlMarks, key: str) -> Any:
    """A JSON value, found under `key`, with its text masked, except the words that requests and templates share."""
    match value:
        case str():
            return value if value in _WORDS.get(key, ()) else marks.mask(value)
        case dict():
            names = {name: name if name in _KEYS else marks.mask(name) for name in value}
            return {names[name]: _masked(item, marks, name) for name, item in value.items()}
        case list():
            return [_masked(item, marks, "") for item in value]
        case _:
            return value


def _find(directory: Path) -> dict[str, str]:
    """The templates of a model directory by name."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "chat_template.json"):
        path = directory / name
        if path.is_file():
            found |= _named(path)
    path = directory / "chat_template.jinja"
    if path.is_file():
        found["default"] = path.read_text(encoding="utf-8")
    for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text(encoding="utf-8")
    return found


def _named(path: Path) -> dict[str, str]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))["chat_template"]
    except KeyError:
        return {}
    except (ValueError, TypeError) as error:
        raise TemplateError(f"{path} is not a JSON object: {error}") from error
    match value:
        case None:
            return {}
        case str():
            return {"default": value}
        case list() if all(isinstance(item, dict) and {"name", "template"} <= item.keys() for item in value):
            return {item["name"]: item["template"] for item in value}
    raise TemplateError(f"{path}: chat_template must be a string or a list of objects with name and template")
