"""A coding agent from the npm registry, run as its users run it, without a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import EMBEDDED
from tests.clients.scripted_server import NAME

pytestmark = pytest.mark.clients

PACKAGE = "@qwen-code/qwen-code@0.15.10"


@pytest.fixture(scope="module")
def qwen_code() -> Path:
    """The program, installed into the cache of the tests."""
    from tests.real.smollm2 import cache_directory

    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: the agent comes from its registry")
    place = cache_directory() / PACKAGE.replace("/", "-")
    program = place / "node_modules" / ".bin" / "qwen"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", PACKAGE], cwd=place, check=True, timeout=600)
    return program


def run(program: Path, url: str, model: str, task: str, home: Path) -> list[dict[str, Any]]:
    """What the agent reports of one task."""
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": model,
    }
    command = [str(program), "--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "json", task]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=home, check=False)
    report: list[dict[str, Any]] = json.loads(done.stdout)
    return report


def test_qwen_code_writes_the_file_it_is_asked_for(
    qwen_code: Path, scripted: str, hello_path: Path, tmp_path: Path
) -> None:
    report = run(qwen_code, scripted, NAME, f"Write the file {hello_path}, please", tmp_path / "home")
    assert report[-1]["result"] == "The tool said what it had to say."
    assert report[-1]["stats"]["tools"]["byName"]["write_file"]["success"] == 1
    assert report[-1]["stats"]["models"][NAME]["api"] == {
        **report[-1]["stats"]["models"][NAME]["api"],
        "totalRequests": 2,
        "totalErrors": 0,
    }
    assert hello_path.read_text(encoding="utf-8") == "hello from a script"


def test_A2_an_agent_whose_prompt_does_not_fit_hears_both_counts(
    qwen_code: Path, embedded: str, tmp_path: Path
) -> None:
    """Its instructions and tools are longer than the context of the embedded model."""
    report = run(qwen_code, embedded, EMBEDDED, "Say hello", tmp_path / "home")
    assert re.search(r"maximum context length is 4096 tokens.*requested \d{5} tokens \(\d{5} in", report[-1]["result"])
