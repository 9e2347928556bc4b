"""The official client against a real server."""

from __future__ import annotations

from collections.abc import Callable

import openai
import pytest

from dgpp.serve.server import HttpServer
from tests.serve.support import NAME, Bench, ids, user

TEXT = "Grüße, 世界 😀! And so on."


def client_of(server: HttpServer, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=10)


def test_must_2_chat_streamed_and_whole_agree(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(TEXT)
    client = client_of(server)
    whole = client.chat.completions.create(model=NAME, messages=user(), temperature=0)  # type: ignore[arg-type]
    assert whole.choices[0].message.content == TEXT
    assert whole.usage is not None
    parts, usages, finishes = [], [], []
    for chunk in client.chat.completions.create(
        model=NAME,
        messages=user(),  # type: ignore[arg-type]
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usages.append(chunk.usage)
        parts += [choice.delta.content or "" for choice in chunk.choices]
        finishes += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
    assert "".join(parts) == TEXT
    assert usages[-1] == whole.usage
    assert usages[:-1] == [None] * (len(usages) - 1)
    assert finishes == [whole.choices[0].finish_reason] == ["stop"]


def test_S5_the_stream_helper_accepts_every_chunk(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(lambda request, index: ids(f"{index}{TEXT}"))
    client = client_of(server)
    with client.chat.completions.stream(
        model=NAME,
        messages=user(),  # type: ignore[arg-type]
        n=2,
        logprobs=True,
        top_logprobs=1,
    ) as stream:
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["0" + TEXT, "1" + TEXT]
    for choice in final.choices:
        assert choice.logprobs is not None
        entries = choice.logprobs.content or []
        assert b"".join(bytes(entry.bytes or []) for entry in entries).decode() == choice.message.content


def test_completions_streamed_and_whole_agree(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(TEXT)
    client = client_of(server)
    whole = client.completions.create(model=NAME, prompt="a", logprobs=1, n=2, stop=["And"])
    expected = TEXT[: TEXT.index("And")]
    assert [choice.text for choice in whole.choices] == [expected, expected]
    streamed = list(client.completions.create(model=NAME, prompt="a", stream=True, stop=["And"]))
    assert "".join(choice.text for chunk in streamed for choice in chunk.choices) == expected


def test_errors_arrive_as_the_client_types_them(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    _, server = serving(TEXT, api_key="secret")
    with pytest.raises(openai.AuthenticationError):
        client_of(server, "wrong").models.list()
    client = client_of(server, "secret")
    assert [model.id for model in client.models.list()] == [NAME, "alias"]
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=user())  # type: ignore[arg-type]
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=NAME, messages=user("x" * 300))  # type: ignore[arg-type]
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "max_tokens")


def test_an_error_in_a_stream_is_raised(serving: Callable[..., tuple[Bench, HttpServer]]) -> None:
    made, server = serving(TEXT, hold=("decode",))
    stream = client_of(server).chat.completions.create(model=NAME, messages=user(), stream=True)  # type: ignore[arg-type]
    made.engine.fail("secret detail")
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "engine_failure"
    assert "secret" not in str(caught.value)
