"""Requests and replies of services."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import (
    BOOL,
    DAY,
    EMAIL,
    INT,
    NULL,
    NUMBER,
    TEXT,
    URI,
    UUID,
    WHEN,
    arr,
    defs,
    enum,
    maybe,
    num,
    obj,
    ref,
    text,
    whole,
)  # fmt: skip

ADDRESS = obj(
    "street city country",
    street=text(minLength=1, maxLength=40),
    city=TEXT,
    zip=text(pattern=r"^\d{5}(-\d{4})?$"),
    country=text(pattern="^[A-Z]{2}$"),
)
MONEY = obj(amount=num(0, 1_000_000, multipleOf=0.01), currency=enum("EUR", "USD", "GBP", "JPY"))

SCHEMAS: dict[str, Any] = {
    "user": obj("id name email", id=UUID, name=text(maxLength=30), email=EMAIL, age=whole(0, 150), active=BOOL),
    "user with address": obj("name address", name=TEXT, address=ADDRESS, tags=arr(TEXT, 0, 3)),
    "order": defs(
        obj(
            "id lines total",
            id=text(pattern="^ORD-[0-9]{6}$"),
            lines=arr(ref("line"), 1, 3),
            total=MONEY,
            note=maybe(text(maxLength=20)),
        ),
        line=obj(sku=text(pattern="^[A-Z]{3}-[0-9]{3}$"), quantity=whole(1, 99), price=num(0)),
    ),
    "payment": obj(
        "method amount", method=enum("card", "transfer", "cash"), amount=MONEY, reference=text(maxLength=16), paid=WHEN
    ),
    "invoice": obj(number=whole(1), issued=DAY, due=DAY, customer=ADDRESS, items=arr(obj(text=TEXT, net=NUMBER), 1, 2)),
    "webhook": obj("event data", event=enum("push", "pull_request", "release"), data=obj(rest=True), sent=WHEN),
    "chat message": obj(role=enum("system", "user", "assistant"), content=TEXT),
    "conversation": obj(messages=arr(obj(role=enum("user", "assistant"), content=text(maxLength=30)), 1, 3)),
    "tool call": obj(name=enum("search", "fetch"), arguments=obj("query", query=TEXT, limit=whole(1, 50))),
    "embedding": obj(index=whole(0), embedding=arr(num(-1, 1), 2, 4)),
    "page of results": obj("items next", items=arr(obj(id=INT, title=TEXT), 0, 3), next=maybe(TEXT), total=whole(0)),
    "cursor": obj(cursor={"type": ["string", "null"]}, has_more=BOOL),
    "error reply": obj(
        error=obj("message type", message=TEXT, type=enum("invalid", "server"), code=maybe(TEXT), param=maybe(TEXT))
    ),
    "problem details": obj(
        "type title status", type=URI, title=TEXT, status=whole(400, 599), detail=TEXT, instance=TEXT
    ),
    "health": obj(
        status=enum("ok", "degraded", "down"),
        checks={"type": "object", "additionalProperties": BOOL, "maxProperties": 3},
    ),
    "metrics": obj(values={"type": "object", "additionalProperties": NUMBER, "maxProperties": 3}, at=WHEN),
    "geo point": obj(
        type={"const": "Point"},
        coordinates={"type": "array", "prefixItems": [num(-180, 180), num(-90, 90)], "items": False, "minItems": 2},
    ),
    "weather": obj(
        "city temperature",
        city=TEXT,
        temperature=num(-90, 60),
        unit=enum("C", "F"),
        wind=obj(speed=num(0), direction=enum("N", "E", "S", "W")),
    ),
    "flight": obj(
        number=text(pattern="^[A-Z]{2}[0-9]{3,4}$"),
        origin=text(pattern="^[A-Z]{3}$"),
        departs=WHEN,
        seats=arr(text(pattern="^[0-9]{1,2}[A-F]$"), 1, 2),
    ),
    "booking": obj(
        "room from until",
        room=whole(1, 400),
        **{"from": DAY, "until": DAY},
        guests=arr(obj(name=TEXT, child=BOOL), 1, 2),
    ),
    "calendar event": obj(
        "title start", title=TEXT, start=WHEN, duration=text(format="duration"), attendees=arr(EMAIL, 0, 2)
    ),
    "e-mail": obj(
        "to subject", to=arr(EMAIL, 1, 2), cc=arr(EMAIL, 0, 1), subject=text(maxLength=25), body=TEXT, html=BOOL
    ),
    "search": obj(
        "query",
        query=text(minLength=1),
        filters={"type": "object", "additionalProperties": arr(TEXT, 1, 2), "maxProperties": 2},
        page=whole(1),
        size=enum(10, 20, 50),
    ),
    "product": obj(
        "id name price",
        id=INT,
        name=TEXT,
        price=num(0, exclusiveMinimum=0),
        stock=whole(0),
        attributes={
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
            "maxProperties": 2,
        },
    ),
    "review": obj(rating=whole(1, 5), title=text(maxLength=20), text=TEXT, verified=BOOL),
    "shipment": obj(
        "tracking events",
        tracking=text(pattern="^1Z[0-9A-Z]{4}$"),
        events=arr(obj(at=WHEN, status=enum("picked", "sent", "delivered")), 1, 2),
    ),
    "device": obj(
        id=UUID,
        address=text(format="ipv4"),
        v6=text(format="ipv6"),
        host=text(format="hostname"),
        ports=arr(whole(1, 65535), 0, 3),
    ),
    "login": obj(
        "user password", user=text(minLength=3, maxLength=12), password=text(minLength=8, maxLength=16), remember=BOOL
    ),
    "token": obj(
        access_token=text(minLength=8, maxLength=20),
        token_type={"const": "Bearer"},
        expires_in=whole(1, 86400),
        scope=TEXT,
    ),
    "upload": obj(
        name=text(pattern=r"^[\w-]{1,12}\.(png|jpg|pdf)$"),
        size=whole(0, 10_000_000),
        digest=text(pattern="^[0-9a-f]{16}$"),
    ),
    "patch": arr(
        obj("op path", op=enum("add", "remove", "replace"), path=text(pattern="^(/[a-z0-9]+)+$"), value={}), 1, 2
    ),
    "batch": obj(
        requests=arr(obj("method url", method=enum("GET", "POST"), url=URI, body=maybe(obj(rest=True))), 1, 2)
    ),
    "nullable fields": obj(
        a={"type": ["integer", "null"]}, b={"type": ["array", "null"], "items": INT, "maxItems": 2}, c=NULL
    ),
    "open object": obj("id", rest=None, id=INT, name=TEXT),
    "int32 and int64": obj(a=INT | {"format": "int32"}, b=INT | {"format": "int64"}, c=NUMBER | {"format": "double"}),
}
