"""chat_template_kwargs: what a request, or the server for all requests, tells the chat template (spec/api.md §5.4).

Two keys are about thinking. The switch has two names, and a template reads one of them; an effort is a word that only
some templates know, and asking for one turns thinking on where there is a switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from dgpp.serve import fields
from dgpp.serve.body import JsonObject, parse_body
from dgpp.serve.errors import INVALID, INVALID_PARAMETER, UNSUPPORTED_EFFORT, UNSUPPORTED_PARAMETER, ApiError
from dgpp.text.template import EFFORTS

FIELD = "chat_template_kwargs"
SWITCHES = ("enable_thinking", "thinking")
EFFORT = "reasoning_effort"
HISTORY = ("preserve_thinking", "preserve_reasoning", "clear_thinking", "drop_thinking", "truncate_history_thinking")
"""What becomes of the thinking of past turns. One that the template does not read has no effect."""


def read_template_kwargs(body: Mapping[str, Any], reads: Set[str]) -> dict[str, Any]:
    """The variables for a template that reads the names `reads`, from the chat_template_kwargs in `body`.

    The switch goes by every name that the template has for it. Raises ApiError naming the key that cannot be used.
    """
    if FIELD not in body:
        return {}
    given = body[FIELD]
    if not isinstance(given, JsonObject):
        raise ApiError(INVALID, f"{FIELD} must be an object.", FIELD)
    if given.duplicate is not None:
        raise ApiError(INVALID_PARAMETER, f"{FIELD}.{given.duplicate} is given twice.", f"{FIELD}.{given.duplicate}")
    for key in given:
        if key not in (*SWITCHES, EFFORT, *HISTORY):
            raise ApiError(UNSUPPORTED_PARAMETER, f"{FIELD}.{key} is not supported.", f"{FIELD}.{key}")
    switch, effort = _switch(given, reads), _effort(given, reads)
    if effort is not None and any(name in reads for name in SWITCHES):
        wanted = effort != "none"
        if switch not in (None, wanted):
            raise ApiError(INVALID, f"{FIELD}.{EFFORT} {effort!r} contradicts the switch.", f"{FIELD}.{SWITCHES[0]}")
        switch = wanted
    variables: dict[str, Any] = {} if effort in (None, "none") else {EFFORT: effort}
    if switch is not None:
        variables |= {name: switch for name in SWITCHES if name in reads}
    return variables | {key: _boolean(given, key) for key in HISTORY if key in given}


def default_template_kwargs(text: str | None, reads: Set[str]) -> JsonObject:
    """The operator's chat_template_kwargs for requests that bring none, from their JSON; empty without any.

    Raises ValueError for what a request could not have either.
    """
    if text is None:
        return JsonObject()
    try:
        given = parse_body(text.encode("utf-8", "surrogateescape"))
    except ApiError:
        raise ValueError(f"the default {FIELD} must be a JSON object, got {text!r}") from None
    try:
        read_template_kwargs({FIELD: given}, reads)
    except ApiError as error:
        raise ValueError(f"default {FIELD}: {error.message}") from None
    return given


def _switch(given: JsonObject, reads: Set[str]) -> bool | None:
    """Whether to think, where that is said."""
    found: bool | None = None
    for key in (name for name in SWITCHES if name in given):
        if not any(name in reads for name in SWITCHES):
            raise ApiError(UNSUPPORTED_PARAMETER, "This model's template has no thinking switch.", f"{FIELD}.{key}")
        value = _boolean(given, key)
        if found not in (None, value):
            raise ApiError(INVALID, f"{FIELD} has {' and '.join(SWITCHES)}, which differ.", f"{FIELD}.{key}")
        found = value
    return found


def _effort(given: JsonObject, reads: Set[str]) -> str | None:
    """The effort, where one is named. "none" needs a switch, every other a template that reads efforts."""
    if EFFORT not in given:
        return None
    effort, param = given[EFFORT], f"{FIELD}.{EFFORT}"
    if effort not in EFFORTS:
        raise ApiError(INVALID, f"{param} must be one of {', '.join(EFFORTS)}.", param)
    if not (any(name in reads for name in SWITCHES) if effort == "none" else EFFORT in reads):
        raise ApiError(UNSUPPORTED_EFFORT, f"This model's template knows no effort {effort!r}.", param)
    return str(effort)


def _boolean(given: JsonObject, key: str) -> bool:
    return fields.boolean(given, key, False, null=False, prefix=f"{FIELD}.")
