"""Eight clients at once: the check that a model's server gives everybody what they would get alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import openai

from tests.serve.served import idle

QUESTIONS = (
    "What is the capital of France?",
    "List three colours, one per line.",
    "Write one sentence about the sea.",
    "Explain in a few words what a prime number is, and name the first ten of them in order.",
    "Say hello in Spanish.",
    "Why is the sky blue? " * 12,
    "Count from one to twenty.",
    "Tell me a very long story about a dog.",
)
LEAVER = 7
"""The client that hangs up in the middle of its answer."""


def check_company(url: str, model: str, context: int, most: int = 24) -> None:
    """Eight streams of mixed lengths, of which one leaves; beside them a prompt longer than the pool.

    Every text that stays equals its solo text, streamed and not; the long prompt gets 400 with both counts; and no
    slot or page is left behind.
    """
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)

    def ask(index: int) -> dict[str, object]:
        messages = [{"role": "user", "content": QUESTIONS[index]}]
        return {"model": model, "temperature": 0, "max_tokens": most + 3 * index, "messages": messages}

    def whole(index: int) -> str:
        return client.chat.completions.create(**ask(index)).choices[0].message.content  # type: ignore[call-overload,no-any-return]

    barrier = threading.Barrier(len(QUESTIONS) + 1)

    def stream(index: int) -> str:
        barrier.wait()
        text = ""
        with client.chat.completions.create(**ask(index), stream=True) as chunks:  # type: ignore[call-overload]
            for count, chunk in enumerate(chunks):
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                if index == LEAVER and count == 4:
                    break
        return text

    def too_long() -> openai.APIStatusError:
        barrier.wait()
        try:
            client.chat.completions.create(
                model=model, max_tokens=5, messages=[{"role": "user", "content": "word " * (context + 10)}]
            )
        except openai.BadRequestError as error:
            return error
        raise AssertionError("a prompt longer than the pool was accepted")

    before = idle(url)
    solo = [whole(index) for index in range(len(QUESTIONS))]
    with ThreadPoolExecutor(len(QUESTIONS) + 1) as pool:
        refused = pool.submit(too_long)
        texts = list(pool.map(stream, range(len(QUESTIONS))))
        error = refused.result()

    stayed = [index for index in range(len(QUESTIONS)) if index != LEAVER]
    assert [texts[index] for index in stayed] == [solo[index] for index in stayed]
    assert len(set(solo)) > 4
    assert solo[LEAVER].startswith(texts[LEAVER])
    assert texts[LEAVER] != solo[LEAVER]
    assert error.code == "context_length_exceeded"
    assert f"{context} tokens" in error.message
    assert "5 in the completion" in error.message

    after = idle(url)
    assert after["scheduler"]["pool_blocks_in_use"] == 0
    assert after["scheduler"]["active"] == after["scheduler"]["queued"] == after["scheduler"]["prefilling"] == 0
    assert after["scheduler"]["compiles_after_ready"] == 0
    assert after["service"]["requests_cancelled"] - before["service"]["requests_cancelled"] == 1
