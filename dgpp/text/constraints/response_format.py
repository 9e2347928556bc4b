"""The request's `response_format` (spec/api.md §8; the kinds `regex` and `grammar` are extensions)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dgpp.text.constraints.errors import GrammarError
from dgpp.text.constraints.limits import DEFAULT_LIMITS, Limits
from dgpp.text.constraints.schema import checked_schema
from dgpp.text.constraints.schema_checked import CheckedSchema
from dgpp.text.unicode_check import surrogate_path

log = logging.getLogger(__name__)

Kind = Literal["text", "json", "regex", "lark"]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class ResponseFormat:
    """The form of the content: a checked JSON schema, or the `source` of a regular expression or Lark grammar, by
    `kind`. `pointer` is the request's path of it. What is not `strict` may be served as any JSON object."""

    kind: Kind = "text"
    source: str = ""
    schema: CheckedSchema | None = None
    pointer: str = "response_format"
    strict: bool = True


JSON_OBJECT = ResponseFormat("json", schema=checked_schema({"type": "object"}, "response_format"))


def parse_response_format(value: Any, limits: Limits = DEFAULT_LIMITS) -> ResponseFormat:
    """The form that a request asks for; None and a missing field are text.

    Raises GrammarError naming the field, with code "unsupported_schema" for a keyword that cannot be enforced. A
    schema without `strict: true` that cannot be enforced is served as any JSON object, with a warning in the log.
    """
    at = "response_format"
    if value is None:
        return ResponseFormat()
    if not isinstance(value, dict):
        raise GrammarError(f"{at} must be an object with a type", at)
    if (where := surrogate_path(value, at)) is not None:
        raise GrammarError(f"{where} holds an unpaired surrogate, which is not Unicode text", where)
    match value.get("type"):
        case "text":
            return ResponseFormat()
        case "json_object":
            return JSON_OBJECT
        case "json_schema":
            return _json_schema(value.get("json_schema"), f"{at}.json_schema", limits)
        case "regex":
            return ResponseFormat("regex", _text(value.get("pattern"), f"{at}.pattern"), pointer=f"{at}.pattern")
        case "grammar":
            return _grammar(value.get("grammar"), f"{at}.grammar")
        case other:
            known = "text, json_object, json_schema, regex or grammar"
            raise GrammarError(f"{at}.type must be {known}, not {_shown(other)}", f"{at}.type")


def _json_schema(value: Any, at: str, limits: Limits) -> ResponseFormat:
    if not isinstance(value, dict):
        raise GrammarError(f"{at} must be an object with a name and a schema", at)
    name, schema, strict = value.get("name"), value.get("schema"), value.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GrammarError(f"{at}.name must be 1 to 64 of the characters A-Z a-z 0-9 _ -", f"{at}.name")
    if strict is not None and not isinstance(strict, bool):
        raise GrammarError(f"{at}.strict must be true, false or null", f"{at}.strict")
    if "description" in value and not isinstance(value["description"], str | None):
        raise GrammarError(f"{at}.description must be a string", f"{at}.description")
    if schema is None:
        return JSON_OBJECT
    if not isinstance(schema, dict):
        raise GrammarError(f"{at}.schema must be an object", f"{at}.schema")
    try:
        checked = checked_schema(schema, f"{at}.schema", limits)
    except GrammarError as error:
        if strict:
            raise
        return any_object(error)
    return ResponseFormat("json", schema=checked, pointer=f"{at}.schema", strict=bool(strict))


def any_object(error: GrammarError) -> ResponseFormat:
    """What is served instead of a schema that is not strict and cannot be enforced; the log says so."""
    log.warning("response_format is served as any JSON object: %s", error.message)
    return JSON_OBJECT


def _grammar(value: Any, at: str) -> ResponseFormat:
    if not isinstance(value, Mapping):
        raise GrammarError(f"{at} must be an object with a syntax and a definition", at)
    definition = _text(value.get("definition"), f"{at}.definition")
    match value.get("syntax"):
        case "regex":
            return ResponseFormat("regex", definition, pointer=f"{at}.definition")
        case "lark":
            return ResponseFormat("lark", definition, pointer=f"{at}.definition")
        case other:
            raise GrammarError(f"{at}.syntax must be regex or lark, not {_shown(other)}", f"{at}.syntax")


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value:
        raise GrammarError(f"{at} must be a non-empty string", at)
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:40] if isinstance(value, str) else type(value).__name__
