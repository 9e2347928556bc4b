"""Routes, the API key, and errors that belong to no field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dgpp.serve.settings import Settings
from tests.serve.support import NAME, Bench, chat

ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", f"/v1/models/{NAME}"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/v1/metrics"),
    ("GET", "/metrics/prometheus"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_api_1_other_methods_are_405(bench: Callable[..., Bench], method: str, path: str) -> None:
    made = bench()
    for other in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - {method}:
        reply = made.client.open(path, method=other)
        error = reply.get_json()["error"]
        assert (reply.status_code, error["type"]) == (405, "invalid_request_error")
        assert (error["code"], error["param"]) == (None, None)
        assert method in reply.headers["Allow"]


@pytest.mark.parametrize("path", ["/v1", "/v1/chat", "/v1/chat/completions/", "/metrics/", "/v1/embeddings"])
def test_api_1_unknown_path(bench: Callable[..., Bench], path: str) -> None:
    reply = bench().client.get(path)
    error = reply.get_json()["error"]
    assert (reply.status_code, error["type"], error["code"]) == (404, "invalid_request_error", None)


def test_api_1_query_string_is_not_part_of_the_route(bench: Callable[..., Bench]) -> None:
    assert bench().client.get("/v1/models?limit=3").status_code == 200


def test_A1_models(bench: Callable[..., Bench]) -> None:
    client = bench(info=Bench.info(pool_tokens=128)).client
    listed = client.get("/v1/models").get_json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [NAME, "alias"]
    one = client.get(f"/v1/models/{NAME}").get_json()
    assert one["owned_by"] == "dgpp"
    assert one["context"] == {
        "request_limit_tokens": 128,
        "position_ceiling_tokens": 256,
        "kv_pool_tokens": 128,
        "limited_by": "kv-pool",
    }
    tie = bench(info=Bench.info(pool_tokens=256)).client.get(f"/v1/models/{NAME}").get_json()
    assert tie["context"]["limited_by"] == "position-ceiling"
    unknown = client.get("/v1/models/other/name")
    assert unknown.status_code == 404
    assert unknown.get_json()["error"]["code"] == "model_not_found"
    assert unknown.get_json()["error"]["param"] == "model"


def test_api_11_a_ramp_over_the_positions_is_shown_while_it_is_on(bench: Callable[..., Bench]) -> None:
    made = bench()
    assert "rope_scaling" not in made.client.get(f"/v1/models/{NAME}").get_json()
    made.service.rope_scaling = {"rope_type": "yarn", "factor": 4.0}
    assert made.client.get(f"/v1/models/{NAME}").get_json()["rope_scaling"]["factor"] == 4.0


def test_health(bench: Callable[..., Bench]) -> None:
    reply = bench().client.get("/health")
    assert (reply.status_code, reply.get_json()) == (200, {"status": "ok", "model": NAME})


@pytest.mark.parametrize("path", [path for _, path in ROUTES if path != "/health"] + ["/nothing"])
def test_Z2_api_key(bench: Callable[..., Bench], path: str) -> None:
    made = bench(api_key="kéy")
    method = "POST" if "completions" in path else "GET"
    wrong = ["", "Bearer", "Bearer wrong", "Basic kéy", "kéy", "Bearer  kéy", "Bearer kéy2", "Bearer k\udce9y"]
    for header in [None, *wrong]:
        raw = None if header is None else header.encode("utf-8", "surrogateescape")
        headers = {} if raw is None else {"Authorization": raw.decode("latin-1")}
        reply = made.client.open(path, method=method, headers=headers, json=chat() if method == "POST" else None)
        assert (reply.status_code, reply.get_json()["error"]["code"]) == (401, "invalid_api_key")
    right = {"Authorization": "Bearer kéy".encode().decode("latin-1")}
    assert made.client.open(path, method=method, headers=right, json=chat()).status_code != 401
    assert made.engine.requests == [] or "chat" in path or "completions" in path
    assert made.client.get("/health").status_code == 200


def test_Z2_no_key_wanted_by_default(bench: Callable[..., Bench]) -> None:
    assert Settings().host == "127.0.0.1"
    assert Settings().api_key is None
    client = bench().client
    assert client.get("/v1/models").status_code == 200
    assert client.get("/v1/models", headers={"Authorization": "Bearer anything"}).status_code == 200


def test_api_1_1_body_cap_is_inclusive(bench: Callable[..., Bench]) -> None:
    body = b'{"model": 1' + b" " * 89 + b"}"
    exact = bench(max_body_bytes=len(body)).client.post("/v1/chat/completions", data=body)
    assert exact.get_json()["error"]["param"] == "model"
    over = bench(max_body_bytes=len(body) - 1).client.post("/v1/chat/completions", data=body)
    error = over.get_json()["error"]
    assert (over.status_code, error["code"], error["param"]) == (413, "request_too_large", None)
    assert f"max_body_bytes ({len(body) - 1})" in error["message"]


def test_errors_quote_the_client_in_bounds(bench: Callable[..., Bench]) -> None:
    reply = bench().client.post("/v1/chat/completions", json=chat(model="x" * 100_000))
    assert reply.status_code == 404
    assert len(reply.data) < 2000


def test_an_unforeseen_error_is_a_500_without_its_text(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench()

    def explode(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(made.engine, "submit", explode)
    reply = made.client.post("/v1/chat/completions", json=chat())
    error = reply.get_json()["error"]
    assert (reply.status_code, error["type"], error["code"]) == (500, "server_error", None)
    assert b"secret" not in reply.data


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"port": 65536},
        {"max_body_bytes": 0},
        {"max_connections": 0},
        {"sse_ping_interval": 0},
        {"sse_ping_interval": -2},
        {"default_max_tokens": 0},
        {"api_key": ""},
    ],
)
def test_settings_refuse_what_cannot_work(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]
