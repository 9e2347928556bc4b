"""The description of the API: every route, no other, and what answers really look like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from dgpp.serve.openapi import OPERATIONS, document
from dgpp.serve.requests.chat import CHAT_FIELDS
from dgpp.serve.requests.completion import COMPLETION_FIELDS
from tests.serve.support import MARKERS, NAME, Bench, chat, read_events
from tests.text.templates import QWEN38

Benches = Callable[..., Bench]
CALL = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]

UPLOAD = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhi\r\n--b--\r\n'
)


def test_openapi_lists_every_route_and_no_other(bench: Benches) -> None:
    rules = bench().app.url_map.iter_rules()
    routed = {
        (method.lower(), re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule.rule))
        for rule in rules
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    assert {(operation.method, operation.path) for operation in OPERATIONS} == routed


def test_openapi_is_served_as_one_document(bench: Benches) -> None:
    made = bench()
    served = made.client.get("/openapi.json").get_json()
    assert served == document()
    assert served["openapi"] == "3.1.0"
    assert "security" not in served
    keyed = bench(api_key="secret").client
    assert keyed.get("/openapi.json").status_code == 401
    described = keyed.get("/openapi.json", headers={"Authorization": "Bearer secret"}).get_json()
    assert described["security"] == [{"bearer": []}]
    assert described["paths"]["/health"]["get"]["security"] == []


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document."""
    if isinstance(value, dict):
        if "schema" in value:
            yield value["schema"]
        for item in value.values():
            yield from schemas(item)
    elif isinstance(value, list):
        for item in value:
            yield from schemas(item)


def test_openapi_schemas_are_schemas() -> None:
    described = document()
    found = [*schemas(described["paths"]), *described["components"]["schemas"].values()]
    assert len(found) > 50
    for schema in found:
        jsonschema.Draft202012Validator.check_schema(schema)
        for target in re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(schema)):
            assert target in described["components"]["schemas"]


def test_openapi_has_every_field_that_is_parsed() -> None:
    described = document()
    for path, fields in (("/v1/chat/completions", CHAT_FIELDS), ("/v1/completions", COMPLETION_FIELDS)):
        body = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["properties"]) == {field.name for field in fields if field.schema is not None}
        for field in fields:
            if field.schema is not None:
                assert body["properties"][field.name]["description"] == field.doc


def validator(name: str) -> jsonschema.Draft202012Validator:
    """Checks values against one of the described schemas."""
    components = document()["components"]
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


@pytest.mark.parametrize("wanted", [{}, {"logprobs": True, "top_logprobs": 2, "n": 2}, {"tools": TOOLS}])
def test_openapi_describes_chat_answers(bench: Benches, wanted: dict[str, Any]) -> None:
    wide = Bench.info(position_ceiling=4096)
    made = bench(f"I look.\n</think>\n\nNow.\n\n{CALL}", template=QWEN38, markers=MARKERS, info=wide)
    whole = made.client.post("/v1/chat/completions", json=chat(metadata={"a": "b"}, **wanted))
    validator("ChatCompletion").validate(whole.get_json())
    options = {"include_usage": True}
    stream = made.client.post("/v1/chat/completions", json=chat(stream=True, stream_options=options, **wanted))
    for chunk in read_events(stream.data):
        validator("ChatCompletionChunk").validate(chunk)


def test_openapi_describes_the_other_answers(bench: Benches) -> None:
    client = bench("Hello.").client
    asked = {"model": NAME, "prompt": "x", "logprobs": 2}
    validator("Completion").validate(client.post("/v1/completions", json=asked).get_json())
    for chunk in read_events(client.post("/v1/completions", json={**asked, "stream": True}).data):
        validator("Completion").validate(chunk)
    response = client.post("/v1/responses", json={"model": NAME, "input": "hi"})
    validator("Response").validate(response.get_json())
    message = {"model": NAME, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    validator("Message").validate(client.post("/v1/messages", json=message).get_json())
    validator("TokenCount").validate(client.post("/v1/messages/count_tokens", json=message).get_json())
    kept = client.post("/v1/files", data=UPLOAD, content_type="multipart/form-data; boundary=b").get_json()
    validator("File").validate(kept)
    assert client.get(f"/v1/files/{kept['id']}/content").mimetype == "application/octet-stream"
    validator("FileDeleted").validate(client.delete(f"/v1/files/{kept['id']}").get_json())
    for path, name in (
        ("/v1/models", "ModelList"),
        (f"/v1/models/{NAME}", "Model"),
        ("/v1/files", "FileList"),
        ("/health", "Health"),
        ("/metrics", "Metrics"),
    ):
        validator(name).validate(client.get(path).get_json())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/files", "/nothing"])
def test_openapi_describes_errors(bench: Benches, path: str) -> None:
    validator("Error").validate(bench().client.post(path, json={}).get_json())
    validator("MessagesError").validate(bench().client.post("/v1/messages", json={}).get_json())
