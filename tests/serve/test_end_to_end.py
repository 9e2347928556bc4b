"""The embedded model behind `dgpp serve`, through the official client."""

from __future__ import annotations

import json
import urllib.request

import openai
import pytest

from tests.serve.company import check_company
from tests.serve.served import served


def test_the_embedded_model_serves_eight_clients_of_which_one_hangs_up() -> None:
    with served("--kv-capacity", "4096") as url:
        check_company(url, "dgpp-embedded", 4096)


def test_the_answer_of_the_readme() -> None:
    body = {"model": "dgpp-embedded", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16}
    with served("--max-concurrency", "2") as url:
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            answer = json.load(reply)
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer["usage"]["completion_tokens"] <= 16
    assert answer["choices"][0]["message"]["content"]


def test_Z2_a_key_is_asked_for_when_one_is_set() -> None:
    with served("--api-key", "secret", "--served-model-name", "a", "--served-model-name", "b") as url:
        wrong = openai.OpenAI(base_url=f"{url}/v1", api_key="other", max_retries=0)
        right = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        assert [model.id for model in right.models.list()] == ["a", "b"]
