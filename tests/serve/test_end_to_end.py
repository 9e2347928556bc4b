"""Models behind `dgpp serve`, through the official client."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import urllib.request
from pathlib import Path

import openai
import pytest

from dgpp.checkpoint.digests import model_files
from dgpp.checkpoint.embedded import embedded_path
from tests.models.qwen import directory_of
from tests.serve.company import check_company
from tests.serve.served import served
from tests.text.templates import QWEN38


def test_the_embedded_model_serves_eight_clients_of_which_one_hangs_up() -> None:
    with served("--kv-capacity", "4096") as url:
        check_company(url, "dgpp-embedded", 4096)


def test_a_hybrid_model_serves_eight_clients_of_which_one_hangs_up(tmp_path: Path) -> None:
    """Flash-Next: recurrent state per slot, sparse attention, experts and n-grams, with a template that thinks."""
    directory = shutil.copytree(directory_of("qwen_flash_next", "tiny"), tmp_path / "flash-next")
    (directory / "chat_template.jinja").write_text(QWEN38)
    kwargs = json.dumps({"enable_thinking": False})
    with served(
        str(directory), "--kv-capacity", "2048", "--default-chat-template-kwargs", kwargs,
        "--served-model-name", "flash-next",
    ) as url:  # fmt: skip
        check_company(url, "flash-next", 512)
        check_thinking_switch(url)


def check_thinking_switch(url: str) -> None:
    """The server's default is no thinking, and a request can have it back: the prompts differ as the template says."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def prompt_tokens(**kwargs: bool) -> int:
        answer = client.chat.completions.create(
            model="flash-next",
            max_tokens=1,
            messages=[{"role": "user", "content": "hi"}],
            extra_body={"chat_template_kwargs": kwargs},
        )
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    assert prompt_tokens() == prompt_tokens(enable_thinking=False) != prompt_tokens(enable_thinking=True)
    with pytest.raises(openai.BadRequestError) as refused:
        prompt_tokens(think=True)
    assert refused.value.param == "chat_template_kwargs.think"


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


def test_W14_the_detail_of_a_model_has_the_digests_of_its_files() -> None:
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model_files(embedded_path())}
    with served("--max-concurrency", "2", "--served-model-name", "a") as url:
        end = time.monotonic() + 60
        while True:
            with urllib.request.urlopen(f"{url}/v1/models/a") as reply:
                digests = json.load(reply)["digests"]
            if digests["state"] != "computing" or time.monotonic() > end:
                break
            time.sleep(0.1)
        with urllib.request.urlopen(f"{url}/v1/models") as reply:
            assert "digests" not in json.load(reply)["data"][0]
    assert digests["state"] == "ready"
    assert digests["files"] == files
    assert len(digests["model"]) == 64


def test_Z2_a_key_is_asked_for_when_one_is_set() -> None:
    with served("--api-key", "secret", "--served-model-name", "a", "--served-model-name", "b") as url:
        wrong = openai.OpenAI(base_url=f"{url}/v1", api_key="other", max_retries=0)
        right = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        assert [model.id for model in right.models.list()] == ["a", "b"]
