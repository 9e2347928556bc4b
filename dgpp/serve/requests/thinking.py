"""How much a model should think, and what its chat template is told (spec/api.md §5.4).

A request says it in two places, an operator in one. What is said more closely wins: the effort of the request, then its
chat_template_kwargs, then the operator's, then what the template does without any. Two keys are about thinking: the
switch, which has two names of which a template reads one, and an effort, which turns thinking on where there is a
switch. A template that reads only the switch takes every effort for on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dgpp.serve.errors import INVALID, INVALID_PARAMETER, UNSUPPORTED_EFFORT, UNSUPPORTED_PARAMETER, ApiError
from dgpp.serve.requests.body import JsonObject, parse_body
from dgpp.serve.requests.fields import Body, Flag, Shaped, nullable
from dgpp.text.efforts import EFFORTS, VARIABLE

FIELD = "chat_template_kwargs"
SWITCHES = ("enable_thinking", "thinking")
HISTORY = ("preserve_thinking", "preserve_reasoning", "clear_thinking", "drop_thinking", "truncate_history_thinking")
"""What becomes of the thinking of past turns. One that the template does not read has no effect."""
_FLAGS = {name: Flag(name, "", null=False, prefix=f"{FIELD}.") for name in (*SWITCHES, *HISTORY)}


@dataclass(frozen=True)
class Controls:
    """What a chat template lets a request say: the variables it `reads`, its value of `reasoning_effort` for each
    word (`efforts`), and whether the model `thinks` at all."""

    reads: frozenset[str] = frozenset()
    efforts: Mapping[str, Any] = field(default_factory=dict)
    thinks: bool = False

    @property
    def switches(self) -> tuple[str, ...]:
        """The names of the switch that the template reads."""
        return tuple(name for name in SWITCHES if name in self.reads)

    def variables(self, effort: str, param: str) -> dict[str, Any]:
        """The variables that `effort` sets. Raises ApiError naming `param` when the template cannot be told."""
        if effort not in EFFORTS:
            raise ApiError(INVALID, f"{param} must be one of {', '.join(EFFORTS)}.", param)
        switch: dict[str, Any] = dict.fromkeys(self.switches, effort != "none")
        if effort == "none":
            if not switch and self.thinks:
                raise ApiError(UNSUPPORTED_EFFORT, "This model always thinks: its template has no switch.", param)
            return switch
        if VARIABLE in self.reads:
            return {VARIABLE: self.efforts[effort], **switch}
        if not switch:
            raise ApiError(UNSUPPORTED_EFFORT, "This model's template has no reasoning effort and no switch.", param)
        return switch

    def mapping(self) -> dict[str, dict[str, Any]]:
        """What each effort sets; those that this model cannot be told are left out."""
        found: dict[str, dict[str, Any]] = {}
        for effort in EFFORTS:
            try:
                found[effort] = self.variables(effort, VARIABLE)
            except ApiError:
                continue
        return found


def _object(value: Any) -> JsonObject:
    if not isinstance(value, JsonObject):
        raise ApiError(INVALID, f"{FIELD} must be an object.", FIELD)
    if value.duplicate is not None:
        raise ApiError(INVALID_PARAMETER, f"{FIELD}.{value.duplicate} is given twice.", f"{FIELD}.{value.duplicate}")
    for key in value:
        if key not in (*SWITCHES, VARIABLE, *HISTORY):
            raise ApiError(UNSUPPORTED_PARAMETER, f"{FIELD}.{key} is not supported.", f"{FIELD}.{key}")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ApiError(INVALID, f"{VARIABLE} must be one of {', '.join(EFFORTS)}.", VARIABLE)
    return value


REASONING_EFFORT = Shaped[str | None](
    VARIABLE, "How much to think; wins over chat_template_kwargs.", nullable({"enum": list(EFFORTS)}), _word, None
)
CHAT_TEMPLATE_KWARGS = Shaped[JsonObject | None](
    FIELD,
    "Extension: variables of the chat template.",
    {
        "type": "object",
        "properties": {
            **{name: flag.schema for name, flag in _FLAGS.items()},
            VARIABLE: {"enum": list(EFFORTS)},
        },
        "additionalProperties": False,
    },
    _object,
    None,
)


def read_effort(body: Body, controls: Controls) -> dict[str, Any]:
    """The template variables that the request's own `reasoning_effort` sets. Raises ApiError."""
    effort = REASONING_EFFORT.read(body)
    return {} if effort is None else controls.variables(effort, VARIABLE)


def read_template_kwargs(body: Body, controls: Controls) -> dict[str, Any]:
    """The template variables that chat_template_kwargs sets: the switch under every name that the template has for it.

    Raises ApiError naming the key that cannot be used, or that says the contrary of another.
    """
    given = _object(body[FIELD]) if FIELD in body else JsonObject()  # null is no object
    switch = _switch(given, controls)
    variables: dict[str, Any] = {}
    if VARIABLE in given:
        param = f"{FIELD}.{VARIABLE}"
        if not isinstance(given[VARIABLE], str):
            raise ApiError(INVALID, f"{param} must be one of {', '.join(EFFORTS)}.", param)
        variables = controls.variables(given[VARIABLE], param)
        if switch not in (None, given[VARIABLE] != "none"):
            message = f"{param} {given[VARIABLE]!r} contradicts the switch."
            raise ApiError(INVALID, message, f"{FIELD}.{SWITCHES[0]}")
    elif switch is not None:
        variables = dict.fromkeys(controls.switches, switch)
    return variables | {key: _FLAGS[key].read(given) for key in HISTORY if key in given}


def together(first: Mapping[str, Any], *closer: Mapping[str, Any]) -> dict[str, Any]:
    """Template variables of several origins, those said more closely last: they win, and where they switch thinking
    off, an effort said before counts no more."""
    result = dict(first)
    for variables in closer:
        if any(variables.get(name) is False for name in SWITCHES):
            result.pop(VARIABLE, None)
        result |= variables
    return result


def default_template_kwargs(text: str | None, controls: Controls) -> JsonObject:
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
        read_template_kwargs({FIELD: given}, controls)
    except ApiError as error:
        raise ValueError(f"default {FIELD}: {error.message}") from None
    return given


def _switch(given: JsonObject, controls: Controls) -> bool | None:
    """Whether to think, where that is said."""
    found: bool | None = None
    for key in (name for name in SWITCHES if name in given):
        if not controls.switches:
            raise ApiError(UNSUPPORTED_PARAMETER, "This model's template has no thinking switch.", f"{FIELD}.{key}")
        value = _FLAGS[key].read(given)
        if found not in (None, value):
            raise ApiError(INVALID, f"{FIELD} has {' and '.join(SWITCHES)}, which differ.", f"{FIELD}.{key}")
        found = value
    return found
