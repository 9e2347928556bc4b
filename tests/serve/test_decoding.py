"""What reaches the engine: sampling fields, their defaults, budgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgpp.engine.request import Sampling
from dgpp.serve.requests.decoding import sampling_defaults
from tests.serve.support import END, NAME, Bench, chat, user

QWEN_LIKE = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": [1, 2]}


@pytest.mark.parametrize(
    ("config", "overrides", "expected"),
    [
        ({}, {}, Sampling()),
        ({"temperature": 0.6, "top_p": 0.9}, {}, Sampling(temperature=0, top_p=0.9)),
        ({"do_sample": False, "temperature": 0.6}, {}, Sampling()),
        ({"do_sample": True}, {}, Sampling(temperature=1.0)),
        (QWEN_LIKE, {}, Sampling(temperature=0.6, top_p=0.95, top_k=20)),
        (QWEN_LIKE, {"temperature": 0.0, "top_k": None}, Sampling(temperature=0, top_p=0.95, top_k=20)),
        ({}, {"temperature": 0.7, "min_p": 0.05}, Sampling(temperature=0.7, min_p=0.05)),
        ({"do_sample": True, "repetition_penalty": 1.05}, {}, Sampling(temperature=1.0, repetition_penalty=1.05)),
        ({"top_k": None, "top_p": None}, {}, Sampling()),
    ],
)
def test_api_3_sampling_defaults(config: dict[str, Any], overrides: dict[str, Any], expected: Sampling) -> None:
    assert sampling_defaults(config, overrides) == expected


@pytest.mark.parametrize("config", [{"top_p": 2}, {"do_sample": True, "temperature": -1}, {"top_k": "x"}])
def test_unusable_default_is_refused_by_name(config: dict[str, Any]) -> None:
    name = next(key for key in config if key != "do_sample")
    with pytest.raises(ValueError, match=name):
        sampling_defaults(config)


def sent(made: Bench, **fields: Any) -> Sampling:
    """The sampling that the engine saw."""
    body = {key: value for key, value in chat(**fields).items() if value is not None}
    assert made.client.post("/v1/chat/completions", json=body).status_code == 200
    return made.engine.requests[-1].sampling


def test_request_fields_replace_defaults(bench: Callable[..., Bench]) -> None:
    made = bench(defaults=Sampling(temperature=0.6, top_p=0.95, top_k=20))
    default = sent(made, temperature=None)
    assert (default.temperature, default.top_p, default.top_k) == (0.6, 0.95, 20)
    changed = sent(
        made, temperature=0, top_k=0, min_p=0.1, repetition_penalty=1.1, seed=7, logit_bias={"5": -1, "3": 2}
    )
    assert changed == Sampling(
        temperature=0, top_p=0.95, min_p=0.1, repetition_penalty=1.1, seed=7, logit_bias=((3, 2.0), (5, -1.0))
    )
    penal = sent(made, presence_penalty=0.5, frequency_penalty=-0.5, logprobs=True, top_logprobs=4)
    assert (penal.presence_penalty, penal.frequency_penalty, penal.logprobs) == (0.5, -0.5, 4)
    assert sent(made, logprobs=True).logprobs == 0
    assert sent(made, logprobs=False).logprobs is None


def test_api_3_top_p_zero_keeps_one_token(bench: Callable[..., Bench]) -> None:
    sampling = sent(bench(defaults=Sampling(top_k=20)), temperature=1, top_p=0)
    assert (sampling.top_p, sampling.top_k) == (1.0, 1)


def test_seed_is_fresh_or_as_given(bench: Callable[..., Bench]) -> None:
    made = bench()
    assert len({sent(made, seed=None).seed for _ in range(8)}) == 8
    assert sent(made, seed=-1).seed == 2**64 - 1
    sent(made, seed=5, n=3)
    assert [request.sampling.seed for request in made.engine.requests[-3:]] == [5, 6, 7]


def test_request_carries_prompt_eos_and_budget(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.client.post("/v1/chat/completions", json=chat(max_completion_tokens=9, ignore_eos=True))
    request = made.engine.requests[0]
    assert bytes(id for id in request.prompt if id < 256) == b"user\nhi\nassistant\n"
    assert (request.max_tokens, request.eos, request.ignore_eos) == (9, frozenset({END}), True)
    made.client.post("/v1/completions", json={"model": NAME, "prompt": "<|im_end|>"})
    assert made.engine.requests[1].prompt == tuple(b"<|im_end|>")  # typed text never becomes a control token


def prompt_tokens(made: Bench, text: str) -> int:
    body = made.client.post("/v1/chat/completions", json=chat(messages=user(text), max_tokens=1)).get_json()
    tokens: int = body["usage"]["prompt_tokens"]
    return tokens


def test_A2_exact_fit_and_one_over(bench: Callable[..., Bench]) -> None:
    made = bench("a" * 200)
    limit = made.engine.info.context_limit
    text = "x" * (limit - 100 - prompt_tokens(made, ""))
    fits = made.client.post("/v1/chat/completions", json=chat(messages=user(text), max_tokens=100))
    assert fits.status_code == 200
    assert fits.get_json()["usage"]["total_tokens"] == limit
    for stream in (False, True):
        over = made.client.post(
            "/v1/chat/completions", json=chat(messages=user(text), max_completion_tokens=101, stream=stream)
        )
        error = over.get_json()["error"]
        assert (over.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "max_tokens")
        assert f"{limit} tokens" in error["message"]
        assert f"{limit - 100} in the prompt" in error["message"]
        assert "101 in the completion" in error["message"]


def test_A2_omitted_budget_is_what_remains(bench: Callable[..., Bench]) -> None:
    made = bench("a" * 500)
    body = made.client.post("/v1/chat/completions", json=chat()).get_json()
    assert body["usage"]["total_tokens"] == made.engine.info.context_limit
    assert body["choices"][0]["finish_reason"] == "length"
    full = "x" * (made.engine.info.context_limit - prompt_tokens(made, ""))
    error = made.client.post("/v1/chat/completions", json=chat(messages=user(full))).get_json()["error"]
    assert error["code"] == "context_length_exceeded"


def test_A3_default_max_tokens_is_only_a_default(bench: Callable[..., Bench]) -> None:
    made = bench("a" * 500, default_max_tokens=20)
    short = made.client.post("/v1/chat/completions", json=chat()).get_json()
    assert (short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]) == (20, "length")
    longer = made.client.post("/v1/chat/completions", json=chat(max_tokens=60)).get_json()
    assert longer["usage"]["completion_tokens"] == 60
    nearly_full = "x" * (made.engine.info.context_limit - 5 - prompt_tokens(made, ""))
    cut = made.client.post("/v1/chat/completions", json=chat(messages=user(nearly_full))).get_json()
    assert cut["usage"]["completion_tokens"] == 5
