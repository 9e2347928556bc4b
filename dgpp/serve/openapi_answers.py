"""The JSON Schemas of answers, for the API description. Objects may hold more than is listed here."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}


def ref(name: str) -> Schema:
    """A reference to one of `ANSWERS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: Schema, *optional: str) -> Schema:
    """An object with these properties, all but `optional` of which are always there."""
    return {"type": "object", "properties": properties, "required": [key for key in properties if key not in optional]}


def const(value: str) -> Schema:
    """Always this string."""
    return {"const": value}


def array(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def or_null(schema: Schema) -> Schema:
    """`schema`, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


_FINISH: Schema = {"enum": ["stop", "length", "tool_calls"]}
_TOKEN = {"token": STRING, "logprob": NUMBER, "bytes": array({"type": "integer", "minimum": 0, "maximum": 255})}
_LOGPROBS = record(
    {
        "content": array(record({**_TOKEN, "top_logprobs": array(record(_TOKEN))})),
        "refusal": {"type": "null"},
    }
)
_LEGACY_LOGPROBS = record(
    {
        "tokens": array(STRING),
        "token_logprobs": array(NUMBER),
        "top_logprobs": array({"type": "object", "additionalProperties": NUMBER}),
        "text_offset": array(COUNT),
    }
)
_CALL = record(
    {
        "id": STRING,
        "type": {"enum": ["function", "custom"]},
        "function": record({"name": STRING, "arguments": STRING}),
        "custom": record({"name": STRING, "input": STRING}),
    },
    "function",
    "custom",
)
_CALL_DELTA = record(
    {
        "index": COUNT,
        "id": STRING,
        "type": {"enum": ["function", "custom"]},
        "function": record({"name": STRING, "arguments": STRING}, "name"),
        "custom": record({"name": STRING, "input": STRING}, "name"),
    },
    *("id", "type", "function", "custom"),
)
_MESSAGE = record(
    {
        "role": const("assistant"),
        "content": TEXT_OR_NULL,
        "reasoning_content": STRING,
        "tool_calls": array(_CALL),
        "refusal": {"type": "null"},
    },
    *("reasoning_content", "tool_calls"),
)
_DELTA = record(
    {"role": const("assistant"), "content": STRING, "reasoning_content": STRING, "tool_calls": array(_CALL_DELTA)},
    *("role", "content", "reasoning_content", "tool_calls"),
)


def _completion(kind: str, choice: Schema, **more: Schema) -> Schema:
    head = {"id": STRING, "object": const(kind), "created": COUNT, "model": STRING, "system_fingerprint": TEXT_OR_NULL}
    return record({**head, "choices": array(record({"index": COUNT, **choice})), **more}, *_OPTIONAL)


_OPTIONAL = ("service_tier", "metadata", "obfuscation", "usage")
_USAGE = ref("Usage")

ANSWERS: dict[str, Schema] = {
    "Error": record(
        {
            "error": record(
                {
                    "message": STRING,
                    "type": {"enum": ["invalid_request_error", "server_error"]},
                    "param": TEXT_OR_NULL,
                    "code": TEXT_OR_NULL,
                }
            )
        }
    ),
    "MessagesError": record({"type": const("error"), "error": record({"type": STRING, "message": STRING})}),
    "Usage": record(
        {
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "total_tokens": COUNT,
            "prompt_tokens_details": record({"cached_tokens": COUNT}),
            "completion_tokens_details": record({"reasoning_tokens": COUNT}),
        }
    ),
    "ChatCompletion": _completion(
        "chat.completion",
        {"message": _MESSAGE, "logprobs": or_null(_LOGPROBS), "finish_reason": _FINISH},
        usage=_USAGE,
        service_tier=STRING,
        metadata={"type": "object", "additionalProperties": STRING},
    ),
    "ChatCompletionChunk": _completion(
        "chat.completion.chunk",
        {"delta": _DELTA, "logprobs": or_null(_LOGPROBS), "finish_reason": or_null(_FINISH)},
        usage=or_null(_USAGE),
        service_tier=STRING,
        obfuscation=STRING,
    ),
    "Completion": _completion(
        "text_completion",
        {"text": STRING, "logprobs": or_null(_LEGACY_LOGPROBS), "finish_reason": or_null(_FINISH)},
        usage=or_null(_USAGE),
    ),
    "Response": record(
        {
            "id": STRING,
            "object": const("response"),
            "created_at": NUMBER,
            "status": {"enum": ["completed", "incomplete", "in_progress", "failed"]},
            "model": STRING,
            "output": array(record({"type": STRING})),
            "usage": or_null(record({"input_tokens": COUNT, "output_tokens": COUNT, "total_tokens": COUNT})),
        }
    ),
    "ResponseEvent": record({"type": STRING, "sequence_number": COUNT}),
    "Message": record(
        {
            "id": STRING,
            "type": const("message"),
            "role": const("assistant"),
            "model": STRING,
            "content": array(record({"type": STRING})),
            "stop_reason": TEXT_OR_NULL,
            "stop_sequence": TEXT_OR_NULL,
            "usage": record({"input_tokens": COUNT, "output_tokens": COUNT}),
        }
    ),
    "MessageEvent": record({"type": STRING}),
    "TokenCount": record({"input_tokens": COUNT}),
    "Model": record(
        {
            "id": STRING,
            "object": const("model"),
            "created": COUNT,
            "owned_by": STRING,
            "context": record(
                {
                    "request_limit_tokens": COUNT,
                    "position_ceiling_tokens": COUNT,
                    "kv_pool_tokens": COUNT,
                    "limited_by": {"enum": ["position-ceiling", "kv-pool"]},
                }
            ),
        }
    ),
    "ModelList": record({"object": const("list"), "data": array(ref("Model"))}),
    "File": record(
        {
            "id": STRING,
            "object": const("file"),
            "bytes": COUNT,
            "created_at": COUNT,
            "filename": STRING,
            "purpose": STRING,
            "status": const("processed"),
        }
    ),
    "FileList": record({"object": const("list"), "data": array(ref("File")), "has_more": FLAG}),
    "FileDeleted": record({"id": STRING, "object": const("file"), "deleted": const(True)}),  # type: ignore[arg-type]
    "Health": record({"status": {"enum": ["ok", "stopping", "failed"]}, "model": STRING, "error": STRING}, "error"),
    "Metrics": record(
        {name: {"type": "object"} for name in ("scheduler", "service", "prefix_cache", "prefill", "nvme_cache")}
    ),
}
"""By name, as `#/components/schemas` has them."""
