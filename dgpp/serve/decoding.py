"""How a request wants its tokens drawn: the decoding fields of both endpoints, and the defaults they replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dgpp.engine.request import Sampling
from dgpp.serve import fields
from dgpp.serve.body import JsonObject
from dgpp.serve.errors import INVALID, ApiError

SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""The fields that a checkpoint's generation_config.json or the operator can give defaults for."""

MAX_CHOICES = 128
MAX_STOPS = 4
MAX_BIASES = 1024
_BIAS_DIGITS = 12


@dataclass(frozen=True)
class Decoding:
    """The decoding fields of one request; None is "as the server does"."""

    max_tokens: int | None = None
    ignore_eos: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logprobs: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()

    def sampling(self, defaults: Sampling, seed: int) -> Sampling:
        """`defaults` with this request's fields over them; `seed` is used when the request brings none.

        A top_p of 0 keeps the single most likely token, which is top_k 1 (the sampler wants top_p above 0).
        """
        given = {name: getattr(self, name) for name in (*SAMPLING_FIELDS, "presence_penalty", "frequency_penalty")}
        given = {name: value for name, value in given.items() if value is not None}
        if given.get("top_p") == 0:
            given |= {"top_p": 1.0, "top_k": 1}
        own_seed = seed if self.seed is None else self.seed
        return replace(
            defaults, **given, logit_bias=self.logit_bias, seed=own_seed & (2**64 - 1), logprobs=self.logprobs
        )


def sampling_defaults(generation_config: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Sampling:
    """What a request gets that sets nothing: the checkpoint's generation_config.json, then the operator's overrides.

    A checkpoint samples only when it says `do_sample`; without it the temperature is 0. An override of the
    temperature holds either way. Raises ValueError naming a value that the sampler could not use.
    """
    values = {name: generation_config[name] for name in SAMPLING_FIELDS if generation_config.get(name) is not None}
    if not generation_config.get("do_sample", False):
        values["temperature"] = 0.0
    elif "temperature" not in values:
        values["temperature"] = 1.0
    values |= {name: value for name, value in (overrides or {}).items() if value is not None}
    try:
        return _sampling_fields(values).sampling(Sampling(), seed=0)
    except ApiError as error:
        raise ValueError(f"sampling default: {error.message}") from None


def read_token_limit(body: Mapping[str, Any], *aliases: str) -> int | None:
    """The token budget under one of its names; an error about two of them bears the first."""
    present = [key for key in aliases if body.get(key) is not None]
    if len(present) > 1:
        raise ApiError(INVALID, f"Send only one of {' and '.join(present)}.", aliases[0])
    return fields.integer(body, present[0], 1, fields.INT32_MAX) if present else None


def read_sampling(body: Mapping[str, Any]) -> Decoding:
    """The sampling fields and the seed; the rest of the Decoding is as omitted."""
    return replace(
        _sampling_fields(body),
        presence_penalty=fields.number(body, "presence_penalty", -2, 2),
        frequency_penalty=fields.number(body, "frequency_penalty", -2, 2),
        seed=fields.integer(body, "seed", fields.INT64_MIN, fields.INT64_MAX, integral=False),
    )


def _sampling_fields(body: Mapping[str, Any]) -> Decoding:
    return Decoding(
        temperature=fields.number(body, "temperature", 0, 2),
        top_p=fields.number(body, "top_p", 0, 1),
        top_k=fields.integer(body, "top_k", 0, fields.INT32_MAX),
        min_p=fields.number(body, "min_p", 0, 1),
        repetition_penalty=fields.number(body, "repetition_penalty", 0, 100, above=True),
    )


def read_n(body: Mapping[str, Any]) -> int:
    """The number of choices."""
    n = fields.integer(body, "n", 1, MAX_CHOICES)
    return 1 if n is None else n


def read_stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings: one, or up to four."""
    value = body.get("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if (
        not isinstance(stops, list)
        or not 1 <= len(stops) <= MAX_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise ApiError(INVALID, f"stop must be a non-empty string or 1 to {MAX_STOPS} of them.", "stop")
    return tuple(stops)


def read_logit_bias(body: Mapping[str, Any], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """(token id, bias) pairs, by id."""
    value = body.get("logit_bias")
    if value is None:
        return ()
    if not isinstance(value, JsonObject) or len(value) > MAX_BIASES:
        raise ApiError(INVALID, f"logit_bias must be an object of at most {MAX_BIASES} entries.", "logit_bias")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= _BIAS_DIGITS and int(key) < vocab_size):
            raise ApiError(INVALID, f"logit_bias key {key!r} is not a token id below {vocab_size}.", "logit_bias")
        if not isinstance(bias, int | float) or isinstance(bias, bool) or not -100 <= bias <= 100:
            raise ApiError(INVALID, f"logit_bias of token {key} must be a number between -100 and 100.", "logit_bias")
        if int(key) in biases or value.duplicate is not None:
            raise ApiError(INVALID, f"logit_bias names token {value.duplicate or key} twice.", "logit_bias")
        biases[int(key)] = float(bias)
    return tuple(sorted(biases.items()))
