"""Requests made from the API description, many of them wrong: no 5xx, no hang, and answers as they are described.

python -m pytest -m slow tests/serve/test_schemathesis.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from dgpp.engine.scripted import ScriptedEngine
from dgpp.serve.openapi import OPERATIONS, Operation, document
from dgpp.serve.server import HttpServer
from dgpp.serve.settings import Settings
from tests.serve.support import MARKERS, NAME, Bench, ids
from tests.text.templates import QWEN38

schemathesis = pytest.importorskip("schemathesis", reason="the package schemathesis is not installed")
pytestmark = pytest.mark.slow

EXAMPLES = 40  # of each operation, of right and of wrong requests
SECONDS = 60  # the longest that one answer may take, on a machine that does much else
WITH_BODY = [operation for operation in OPERATIONS if operation.fields or operation.form]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that answers everything with a few words."""
    info = Bench.info(position_ceiling=4096, pool_tokens=2**20, max_concurrency=128, queue_limit=0)
    engine = ScriptedEngine(ids("I see.\n</think>\n\nA few words."), info=info)
    options = Settings(port=0, default_max_tokens=40, max_file_storage_bytes=2**20)
    made = Bench(engine, options, None, template=QWEN38, markers=MARKERS)
    server = HttpServer(made.service, made.settings)
    server.start()
    yield server.url
    server.stop()
    engine.shutdown()


def described(operation: Operation) -> Any:
    """The operation as the server describes it, but for the model, whose right name is not for a machine to guess."""
    described = json.loads(json.dumps(document()))
    body = described["paths"][operation.path][operation.method].get("requestBody", {}).get("content", {})
    for media in body.values():
        if "model" in media["schema"]["properties"]:
            media["schema"]["properties"]["model"] = {"const": NAME}
    return schemathesis.openapi.from_dict(described)[operation.path][operation.method.upper()]


def run(operation: Operation, url: str, mode: Any) -> set[int]:
    """Sends examples and checks the answers; returns their statuses."""
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.content_type_conformance,
        schemathesis.checks.response_schema_conformance,
    ]
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(described(operation).as_strategy(generation_mode=mode))
    def examples(case: Any) -> None:
        response = case.call(base_url=url, timeout=SECONDS)
        statuses.add(response.status_code)
        case.validate_response(response, checks=checks)

    examples()
    return statuses


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}")
def test_must_4_right_requests_get_no_5xx_and_no_hang(url: str, operation: Operation) -> None:
    assert max(run(operation, url, schemathesis.GenerationMode.POSITIVE)) < 500


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: f"{operation.method} {operation.path}")
def test_must_4_wrong_requests_get_no_5xx_and_no_hang(url: str, operation: Operation) -> None:
    assert max(run(operation, url, schemathesis.GenerationMode.NEGATIVE)) < 500
