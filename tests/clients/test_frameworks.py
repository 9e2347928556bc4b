"""LiteLLM, LangChain and llama-benchy."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from tests.clients.conftest import SMOLLM2
from tests.clients.scripted_server import NAME
from tests.clients.test_openai import QUESTION, TOOL

pytestmark = pytest.mark.clients


class City(pydantic.BaseModel):
    """A city and how many people live there."""

    city: str
    people: int


@pytest.fixture(scope="module")
def litellm() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network for prices
        return pytest.importorskip("litellm")


def test_litellm(litellm: Any, smollm2: str, scripted: str) -> None:
    asked: dict[str, Any] = {"messages": QUESTION, "temperature": 0, "max_tokens": 24, "api_key": "none"}
    reply = litellm.completion(model=f"openai/{SMOLLM2}", api_base=f"{smollm2}/v1", **asked)
    assert "Paris" in reply.choices[0].message.content
    weather = [{"role": "user", "content": "What is the weather like?"}]
    place: dict[str, Any] = {"model": f"openai/{NAME}", "api_base": f"{scripted}/v1", "api_key": "none"}
    chunks = list(litellm.completion(messages=weather, tools=[TOOL], stream=True, **place))
    built = litellm.stream_chunk_builder(chunks, messages=weather)
    assert json.loads(built.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert built.choices[0].message.reasoning_content == "I look it up."
    assert built.choices[0].finish_reason == "tool_calls"


def test_litellm_through_the_messages_api(litellm: Any, scripted: str) -> None:
    weather = [{"role": "user", "content": "What is the weather like?"}]
    reply = litellm.completion(
        model=f"anthropic/{NAME}", api_base=scripted, api_key="none", messages=weather, tools=[TOOL], max_tokens=2000
    )
    assert json.loads(reply.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}


def test_langchain(smollm2: str, scripted: str) -> None:
    chat_model = pytest.importorskip("langchain_openai").ChatOpenAI
    model = chat_model(model=SMOLLM2, base_url=f"{smollm2}/v1", api_key="none", temperature=0, max_tokens=200)
    answer = model.invoke("What is the capital of France?").content
    assert "Paris" in answer
    assert "".join(chunk.content for chunk in model.stream("What is the capital of France?")) == answer
    assert isinstance(model.with_structured_output(City).invoke("Which city has two million people?"), City)
    tools = chat_model(model=NAME, base_url=f"{scripted}/v1", api_key="none").bind_tools([TOOL])
    (call,) = tools.invoke("What is the weather like?").tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})


@pytest.fixture
def book(tmp_path: Path) -> Iterator[str]:
    """The URL of a text for a benchmark that wants to download one."""
    (tmp_path / "book.txt").write_text("It was a dark and stormy night in a town by the sea. " * 2000, encoding="utf-8")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/book.txt"
    server.shutdown()
    server.server_close()


def test_llama_benchy(smollm2: str, book: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_benchy")
    from tests.real.smollm2 import snapshot

    result = tmp_path / "result.json"
    program = Path(sys.executable).with_name("llama-benchy")
    options = ("--pp", "64", "--tg", "16", "--runs", "1", "--exact-tg", "--skip-coherence", "--exit-on-first-fail")
    place = ("--base-url", f"{smollm2}/v1", "--model", SMOLLM2, "--tokenizer", str(snapshot()), "--book-url", book)
    command = [str(program), *place, *options, "--format", "json", "--save-result", str(result)]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (measured,) = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
    assert measured["tg_throughput"]["mean"] > 0
