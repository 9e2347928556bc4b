"""How a request wants its tokens drawn: the decoding fields of both endpoints, and the defaults they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dgpp.engine.request import Sampling
from dgpp.serve.errors import INVALID, ApiError
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.fields import INT32_MAX, INT64_MAX, INT64_MIN, Field, Flag, Integer, Number, Shaped, nullable

MAX_CHOICES = 128
MAX_STOPS = 4
MAX_BIASES = 1024
_BIAS_DIGITS = 12


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if (
        not isinstance(stops, list)
        or not 1 <= len(stops) <= MAX_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise ApiError(INVALID, f"stop must be a non-empty string or 1 to {MAX_STOPS} of them.", "stop")
    return tuple(stops)


def _logit_bias(value: Any) -> tuple[tuple[int, float], ...]:
    """(token id, bias) pairs, by id."""
    if not isinstance(value, JsonObject) or len(value) > MAX_BIASES:
        raise ApiError(INVALID, f"logit_bias must be an object of at most {MAX_BIASES} entries.", "logit_bias")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= _BIAS_DIGITS):
            raise ApiError(INVALID, f"logit_bias key {key!r} is not a token id.", "logit_bias")
        if not isinstance(bias, int | float) or isinstance(bias, bool) or not -100 <= bias <= 100:
            raise ApiError(INVALID, f"logit_bias of token {key} must be a number between -100 and 100.", "logit_bias")
        if int(key) in biases or value.duplicate is not None:
            raise ApiError(INVALID, f"logit_bias names token {value.duplicate or key} twice.", "logit_bias")
        biases[int(key)] = float(bias)
    return tuple(sorted(biases.items()))


MAX_TOKENS = Integer("max_tokens", "Most tokens of the answer, its reasoning included.", 1, INT32_MAX)
MAX_COMPLETION_TOKENS = Integer("max_completion_tokens", "The newer name of max_tokens; send one.", 1, INT32_MAX)
MIN_TOKENS = Integer("min_tokens", "Extension: the answer does not end before so many tokens.", 0, INT32_MAX)
IGNORE_EOS = Flag("ignore_eos", "Extension: an end of sequence does not end the answer.", null=False)
TEMPERATURE = Number("temperature", "0 is exact greedy.", 0, 2)
TOP_P = Number("top_p", "Share of the probability that is kept; 0 keeps one token.", 0, 1)
TOP_K = Integer("top_k", "Extension: most tokens that are kept; 0 is off.", 0, INT32_MAX)
MIN_P = Number("min_p", "Extension: least probability, as a share of the greatest.", 0, 1)
REPETITION_PENALTY = Number("repetition_penalty", "Extension: 1 is off.", 0, 100, above=True)
PRESENCE_PENALTY = Number("presence_penalty", "Taken from the logit of every token that has come.", -2, 2)
FREQUENCY_PENALTY = Number("frequency_penalty", "The same, for each time that it has come.", -2, 2)
SEED = Integer("seed", "Same seed, same draws; choice c uses seed + c.", INT64_MIN, INT64_MAX, integral=False)
N = Integer("n", "Choices to generate.", 1, MAX_CHOICES)
_STOP_TEXT = {"type": "string", "minLength": 1}
STOP = Shaped[tuple[str, ...]](
    "stop",
    "The answer ends before any of these texts; they are looked for in visible content.",
    nullable({"anyOf": [_STOP_TEXT, {"type": "array", "items": _STOP_TEXT, "minItems": 1, "maxItems": MAX_STOPS}]}),
    _stop,
    (),
)
LOGIT_BIAS = Shaped[tuple[tuple[int, float], ...]](
    "logit_bias",
    "Token ids and what is added to their logits.",
    nullable(
        {
            "type": "object",
            "maxProperties": MAX_BIASES,
            "propertyNames": {"pattern": f"^[0-9]{{1,{_BIAS_DIGITS}}}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }
    ),
    _logit_bias,
    (),
)
LOGPROBS = Flag("logprobs", "Whether to return log-probabilities.")
TOP_LOGPROBS = Integer("top_logprobs", "Alternatives to list for each token; needs logprobs: true.", 0, 20)
LEGACY_LOGPROBS = Integer("logprobs", "Alternatives to list for each token; null for no log-probabilities.", 0, 5)

WITH_DEFAULTS: tuple[Number | Integer, ...] = (TEMPERATURE, TOP_P, TOP_K, MIN_P, REPETITION_PENALTY)
SAMPLING_FIELDS = tuple(field.name for field in WITH_DEFAULTS)
"""The fields that a checkpoint's generation_config.json or the operator can give defaults for."""

SAMPLING: tuple[Number | Integer, ...] = (*WITH_DEFAULTS, PRESENCE_PENALTY, FREQUENCY_PENALTY, SEED)
LENGTH: tuple[Field, ...] = (MAX_TOKENS, MIN_TOKENS, IGNORE_EOS)


@dataclass(frozen=True)
class Decoding:
    """The decoding fields of one request; None is "as the server does"."""

    max_tokens: int | None = None
    min_tokens: int = 0
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
        return Decoding(**_values(values, WITH_DEFAULTS)).sampling(Sampling(), seed=0)
    except ApiError as error:
        raise ValueError(f"sampling default: {error.message}") from None


def read_token_limit(body: Mapping[str, Any], *aliases: Integer) -> int | None:
    """The token budget under one of its names; an error about two of them bears the first."""
    present = [field for field in aliases if body.get(field.name) is not None]
    if len(present) > 1:
        names = " and ".join(field.name for field in present)
        raise ApiError(INVALID, f"Send only one of {names}.", aliases[0].name)
    return present[0].read(body) if present else None


def read_decoding(
    body: Mapping[str, Any], logprobs: Callable[[Mapping[str, Any]], int | None], vocab_size: int
) -> Decoding:
    """The sampling fields, what `logprobs` reads, n, stop and logit_bias, in this order; the rest of the Decoding is as
    omitted."""
    values = _values(body, SAMPLING)
    listed = logprobs(body)
    n = N.read(body)
    return Decoding(
        **values,
        logprobs=listed,
        n=1 if n is None else n,
        stop=STOP.read(body),
        logit_bias=_known(LOGIT_BIAS.read(body), vocab_size),
    )


def _values(body: Mapping[str, Any], fields: tuple[Number | Integer, ...]) -> dict[str, Any]:
    return {field.name: field.read(body) for field in fields}


def _known(biases: tuple[tuple[int, float], ...], vocab_size: int) -> tuple[tuple[int, float], ...]:
    for id, _ in biases:
        if id >= vocab_size:
            raise ApiError(INVALID, f"logit_bias key '{id}' is not a token id below {vocab_size}.", "logit_bias")
    return biases
