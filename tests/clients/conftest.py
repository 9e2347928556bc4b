"""Servers as processes for real clients: SmolLM2, the embedded model, and a script for a model that calls tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.served import served

HERE = Path(__file__).parent
SMOLLM2 = "smollm2"
EMBEDDED = "dgpp-embedded"

HELLO = (
    "A file is wanted.\n</think>\n\n<tool_call>\n<function=write_file>\n<parameter=file_path>\n{path}\n</parameter>\n"
    "<parameter=content>\nhello from a script\n</parameter>\n</function>\n</tool_call>"
)
WEATHER = (
    "I look it up.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.fixture(scope="session")
def smollm2() -> Iterator[str]:
    """The base URL of SmolLM2 with a chat template for tools."""
    from tests.real.smollm2 import snapshot

    template = str(HERE / "hermes.jinja")
    arguments = ("--served-model-name", SMOLLM2, "--kv-capacity", "8192", "--chat-template", template)
    with served(str(snapshot()), *arguments) as url:
        yield url


@pytest.fixture(scope="session")
def embedded() -> Iterator[str]:
    """The base URL of the embedded model."""
    with served() as url:
        yield url


@pytest.fixture(scope="session")
def hello_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scripted model writes when it is asked to."""
    return tmp_path_factory.mktemp("agent") / "hello.txt"


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory, hello_path: Path) -> Iterator[str]:
    """The base URL of the scripted model."""
    script = [
        {"when": "<tool_response>", "say": "It is done.\n</think>\n\nThe tool said what it had to say."},
        {"when": "Write the file", "say": HELLO.format(path=hello_path)},
        {"when": "weather", "say": WEATHER},
        {"when": "as JSON", "say": 'Short.\n</think>\n\n{"city": "Paris", "people": 2100000}'},
        {"when": "", "say": "A greeting.\n</think>\n\nHello there."},
    ]
    path = tmp_path_factory.mktemp("script") / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    command = [sys.executable, "-m", "tests.clients.scripted_server", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1]) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://" in line, line
        try:
            yield line[line.index("http://") :].strip()
        finally:
            process.terminate()
            assert process.wait(60) == 0
