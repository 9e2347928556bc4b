"""The fields that chat and raw completions share, and what is judged alike of both."""

from __future__ import annotations

from typing import TypeVar

from dgpp.serve.errors import INVALID, INVALID_PARAMETER, MODEL_NOT_FOUND, ApiError
from dgpp.serve.requests import decoding
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.fields import Body, Flag, Shaped, Text
from dgpp.serve.requests.served import Served

T = TypeVar("T")

NO_PART = "it is no part of this server; leave it out."
"""Why a field of OpenAI's is refused."""

MODEL = Shaped[str]("model", "A name under which the model is served.", {"type": "string"}, str, "")
USER = Text("user", "Accepted, without effect.", kind=INVALID_PARAMETER)
PREFIX_CACHE = Flag("prefix_cache", "Extension: false keeps the request out of the prefix cache.", True, null=False)
CACHE_SALT = Text("cache_salt", "Extension: requests share cached prefixes only under the same salt.")


def read_model(body: Body, served: Served) -> str:
    """The name under which the model is asked for. Raises ApiError."""
    model = body.get(MODEL.name)
    if not isinstance(model, str):
        raise ApiError(INVALID, "model must be a string.", "model")
    if model not in served.names:
        raise ApiError(
            MODEL_NOT_FOUND, f"The model {model!r} is not served here; this is {', '.join(served.names)}.", "model"
        )
    return model


def refuse_duplicate(body: JsonObject) -> None:
    """Raises ApiError for a key that is given twice."""
    if body.duplicate is not None:
        raise ApiError(INVALID_PARAMETER, f"{body.duplicate} is given twice.", body.duplicate)


def read_least(body: Body, limit: int | None) -> int:
    """The least tokens of the answer, of which there may be `limit` at most. Raises ApiError."""
    least = decoding.MIN_TOKENS.read(body) or 0
    if limit is not None and least > limit:
        raise ApiError(INVALID, f"min_tokens must be at most {limit}, the most tokens of the answer.", "min_tokens")
    return least


def required(field: Shaped[T], body: Body) -> T:
    """The value of a field that must be there: a missing one is refused as null is."""
    return field.take(body.get(field.name))
