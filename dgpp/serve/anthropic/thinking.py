"""What a Messages request says about thinking, as chat says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.serve.anthropic.fields import EFFORTS
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.thinking import FIELD, Controls
from dgpp.serve.translation import invalid


def chat_thinking(thinking: Mapping[str, Any], effort: Any, controls: Controls) -> dict[str, Any]:
    """The chat fields for the fields `thinking` and `output_config.effort`. Raises ApiError.

    An effort is a hint in this API, so one that the model cannot be told is dropped. A model that always thinks is kept
    from it by a budget of nothing. Adaptive thinking is what the model does when it is told nothing.
    """
    if effort is not None and effort not in EFFORTS:
        raise invalid("output_config.effort", f"must be one of {', '.join(EFFORTS)}")
    possible = controls.mapping()
    hint = {"reasoning_effort": effort} if effort is not None and effort in possible else {}
    match thinking.get("type"):
        case "adaptive":
            return hint
        case "disabled":
            return {"reasoning_effort": "none"} if "none" in possible else {"thinking_budget": 0}
        case "enabled":
            if thinking.get("budget_tokens") is None:
                raise invalid("thinking.budget_tokens", "is required")
            on = {FIELD: JsonObject(enable_thinking=True)} if controls.switches else {}
            return {**(hint or on), "thinking_budget": thinking["budget_tokens"]}
    raise invalid("thinking.type", "must be enabled, disabled or adaptive")


def omits_thinking(thinking: Mapping[str, Any]) -> bool:
    """Whether thoughts are left out of the answer; a summary of them is the whole of them here. Raises ApiError."""
    display = thinking.get("display")
    if display not in (None, "summarized", "omitted"):
        raise invalid("thinking.display", "must be summarized or omitted")
    return display == "omitted"
