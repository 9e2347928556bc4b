"""Configuration files and workflows."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import (
    BOOL,
    INT,
    NUMBER,
    TEXT,
    URI,
    arr,
    defs,
    enum,
    maybe,
    num,
    obj,
    ref,
    text,
    whole,
)

NAMES = {"propertyless": {"type": "object", "additionalProperties": TEXT, "maxProperties": 2}}

SCHEMAS: dict[str, Any] = {
    "server": obj(
        "host port",
        host=text(format="hostname"),
        port=whole(1, 65535),
        tls=obj("enabled", enabled=BOOL, certificate=TEXT),
        workers=whole(1, 64),
    ),
    "logging": obj(
        level=enum("debug", "info", "warning", "error"),
        handlers=arr(obj("kind", kind=enum("file", "stream"), path=TEXT), 1, 2),
    ),
    "database": obj(
        "driver url", driver=enum("postgres", "sqlite"), url=URI, pool=obj(size=whole(1, 50), timeout=num(0, 60))
    ),
    "feature flags": {"type": "object", "patternProperties": {"^ff_[a-z]{1,8}$": BOOL}, "additionalProperties": False},
    "environment": {
        "type": "object",
        "patternProperties": {"^[A-Z_]{1,10}$": {"type": ["string", "number", "boolean"]}},
        "additionalProperties": False,
        "maxProperties": 3,
    },
    "labels": {"type": "object", "additionalProperties": text(maxLength=8), "maxProperties": 3},
    "at least one label": {
        "type": "object",
        "additionalProperties": text(maxLength=8),
        "minProperties": 1,
        "maxProperties": 2,
    },
    "container": obj(
        "image",
        image=text(pattern=r"^[a-z0-9/-]{1,20}(:[a-z0-9.]{1,8})?$"),
        command=arr(TEXT, 0, 3),
        env=arr(obj(name=TEXT, value=TEXT), 0, 2),
        ports=arr(whole(1, 65535), 0, 2),
    ),
    "compose": obj(
        "services",
        services={
            "type": "object",
            "additionalProperties": obj("image", image=TEXT, restart=enum("no", "always")),
            "minProperties": 1,
            "maxProperties": 2,
        },
    ),
    "deployment": obj(
        kind={"const": "Deployment"},
        metadata=obj("name", name=text(pattern="^[a-z0-9-]{1,12}$"), labels=NAMES["propertyless"]),
        spec=obj(replicas=whole(0, 10)),
    ),
    "resources": obj(limits=obj(cpu=text(pattern="^[0-9]{1,4}m?$"), memory=text(pattern="^[0-9]{1,4}(Mi|Gi)$"))),
    "pipeline": obj(
        on=arr(enum("push", "schedule"), 1, 2),
        jobs={
            "type": "object",
            "additionalProperties": obj("steps", steps=arr(obj(run=TEXT), 1, 2)),
            "minProperties": 1,
            "maxProperties": 2,
        },
    ),
    "cron": obj(schedule=text(pattern=r"^([0-9*]{1,2} ){4}[0-9*]{1,2}$"), command=TEXT, enabled=BOOL),
    "package": obj(
        "name version",
        name=text(pattern="^[a-z][a-z0-9-]{0,14}$"),
        version=text(pattern=r"^\d{1,2}\.\d{1,2}\.\d{1,3}$"),
        private=BOOL,
        scripts=NAMES["propertyless"],
    ),
    "semantic version": text(pattern=r"^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})(-[0-9a-z.]{1,6})?$"),
    "formatter": obj(
        "", indent=enum(2, 4, "tab"), width=whole(40, 200), quotes=enum("single", "double"), trailing=BOOL
    ),
    "linter rule": {
        "anyOf": [
            enum("off", "warn", "error"),
            {"type": "array", "prefixItems": [enum("warn", "error"), obj("", max=INT)], "items": False, "minItems": 1},
        ]
    },
    "router": arr(
        obj("path target", path=text(pattern="^/[a-z/]{0,10}$"), target=URI, methods=arr(enum("GET", "PUT"), 1, 2)),
        1,
        2,
    ),
    "retry": obj(attempts=whole(0, 10), backoff=num(exclusiveMinimum=0, high=60), jitter=num(0, 1)),
    "sampling": obj(
        "",
        temperature=num(0, 2),
        top_p=num(0, 1),
        top_k=whole(0, 1000),
        seed=INT | {"format": "int64"},
        stop=arr(TEXT, 1, 2),
    ),
    "model": obj(
        layers=whole(1, 128),
        width=whole(64, 8192, multipleOf=64),
        dropout=num(0, high=None, exclusiveMaximum=1),
        activation=enum("gelu", "silu"),
    ),
    "training": obj(
        steps=whole(1),
        rate=num(exclusiveMinimum=0, high=1),
        schedule=enum("cosine", "linear"),
        mixed=BOOL,
        betas={"type": "array", "prefixItems": [num(0, 1), num(0, 1)], "items": False, "minItems": 2},
    ),
    "colours": obj(
        "primary",
        primary=text(pattern="^#[0-9a-fA-F]{6}$"),
        accent=text(pattern="^#[0-9a-fA-F]{3}$"),
        opacity=num(0, 1, multipleOf=0.05),
    ),
    "theme": obj("mode", mode=enum("light", "dark", "auto"), font=obj(family=TEXT, size=num(6, 72, multipleOf=0.5))),
    "keyboard": arr(obj(keys=text(pattern="^(ctrl|alt|shift)\\+[a-z]$"), command=TEXT, when=maybe(TEXT)), 0, 3),
    "permissions": defs(obj(roles=arr(ref("role"), 1, 2), default=ref("role")), role=enum("read", "write", "admin")),
    "network rule": obj(
        "action protocol",
        action=enum("allow", "deny"),
        protocol=enum("tcp", "udp", "icmp"),
        source=text(format="ipv4"),
        mask=whole(0, 32),
        ports=arr(whole(1, 65535), 0, 2),
    ),
    "cache": obj("", size=num(0, 1e6), ttl=text(format="duration"), policy=enum("lru", "lfu", None)),
    "matrix": obj(
        include=arr(
            {
                "type": "object",
                "additionalProperties": {"type": ["string", "number"]},
                "minProperties": 1,
                "maxProperties": 2,
            },
            1,
            2,
        )
    ),
    "thresholds": obj(low=num(-1e3, 0), high=num(0, 1e3), exact=num(0.1, 0.9), percent=whole(0, 100, multipleOf=5)),
    "exactly one source": {
        "type": "object",
        "properties": {"path": TEXT, "url": URI, "inline": TEXT},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "at least one selector": {
        "type": "object",
        "properties": {"name": TEXT, "id": INT},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "float settings": obj(a=NUMBER, b=num(-0.5, 0.5), c=num(1.25, 1.75), d=num(low=None, high=-2.5)),
}
