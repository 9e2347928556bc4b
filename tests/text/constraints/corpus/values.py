"""Numbers, strings and formats."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import INT, TEXT, arr, enum, num, obj, text, whole

SCHEMAS: dict[str, Any] = {
    "percentage": num(0, 100),
    "probability": num(exclusiveMinimum=0, exclusiveMaximum=1),
    "latitude": num(-90, 90),
    "below zero": num(exclusiveMaximum=0),
    "cents": num(0, 999.99, multipleOf=0.01),
    "quarter steps": num(-2, 2, multipleOf=0.25),
    "dozens": whole(12, 144, multipleOf=12),
    "year": whole(1900, 2100),
    "temperature": num(-273.15, 1000.5),
    "tight interval": num(0.333, 0.334),
    "one unit": num(exclusiveMinimum=1, high=1.5),
    "minus one unit": num(-1.5, exclusiveMaximum=-1),
    "bits": whole(-128, 127),
    "large integers": whole(10**15, 10**16),
    "single value": num(2.5, 2.5),
    "date": text(format="date"),
    "times": obj(at=text(format="time"), on=text(format="date-time"), lasts=text(format="duration")),
    "addresses": obj(
        v4=text(format="ipv4"), v6=text(format="ipv6"), name=text(format="hostname"), mail=text(format="email")
    ),
    "identifiers": arr(text(format="uuid"), 1, 2),
    "links": arr(text(format="uri"), 1, 2),
    "fixed length": text(minLength=6, maxLength=6),
    "short text": text(maxLength=3),
    "one of three words": text(pattern="^(alpha|beta|gamma)$"),
    "hexadecimal": text(pattern="^0x[0-9a-f]{1,8}$"),
    "phone": text(pattern=r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$"),
    "plate": text(pattern="^[A-ZÄÖÜ]{1,3}-[A-Z]{1,2} [0-9]{1,4}$"),
    "isbn": text(pattern=r"^97[89]-\d-\d{2}-\d{6}-[\dX]$"),
    "no digits": text(pattern=r"^\D+$"),
    "no blanks": text(pattern=r"^\S+$", maxLength=10),
    "begins with": text(pattern="^https?:"),
    "dated name": text(pattern="^2024", format="date"),
    "enum of texts": enum("", " ", "\n", '"', "\\", "é", "日本", "😀", "</tool_call>"),
    "quoted enum": enum('say "hi"', "tab\there", "back\\slash"),
    "maps of formats": {"type": "object", "additionalProperties": text(format="date"), "maxProperties": 2},
    "named numbers": {
        "type": "object",
        "properties": {"pi": {"const": 3.14}, "e": enum(2.71, 2.72)},
        "required": ["pi", "e"],
        "additionalProperties": INT,
    },
    "mixed map": {
        "type": "object",
        "properties": {"id": INT},
        "patternProperties": {"^s_": TEXT, "^n_": num(0, 1)},
        "additionalProperties": False,
    },
}
