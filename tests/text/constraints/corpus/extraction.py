"""What people ask models to extract, classify and plan."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import (
    BOOL,
    DAY,
    EMAIL,
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

SCHEMAS: dict[str, Any] = {
    "answer": obj(answer=TEXT),
    "answer with confidence": obj(answer=TEXT, confidence=num(0, 1)),
    "reasoned answer": obj(steps=arr(obj(explanation=TEXT, output=TEXT), 1, 3), final_answer=TEXT),
    "sentiment": obj(sentiment=enum("positive", "neutral", "negative"), score=num(-1, 1)),
    "labels of a text": obj(labels=arr(enum("sport", "politics", "science", "art"), 1, 2)),
    "yes or no": enum("yes", "no"),
    "boolean": BOOL,
    "number alone": num(0, 10),
    "list of strings": arr(text(maxLength=12), 1, 4),
    "entities": obj(
        entities=arr(obj(text=TEXT, kind=enum("person", "place", "date"), start=whole(0), end=whole(0)), 0, 3)
    ),
    "relations": obj(
        triples=arr(
            {"type": "array", "prefixItems": [TEXT, enum("is", "has", "part of"), TEXT], "items": False, "minItems": 3},
            0,
            2,
        )
    ),
    "contact": obj(
        "name", name=TEXT, emails=arr(EMAIL, 0, 2), phones=arr(text(pattern=r"^\+[0-9]{7,12}$"), 0, 2), site=maybe(URI)
    ),
    "résumé": obj(
        "name skills",
        name=TEXT,
        skills=arr(TEXT, 1, 3),
        jobs=arr(obj("title from", title=TEXT, **{"from": DAY, "to": maybe(DAY)}), 0, 2),
    ),
    "receipt": obj(
        shop=TEXT,
        date=DAY,
        items=arr(obj(name=TEXT, price=num(0, 9999.99, multipleOf=0.01)), 1, 3),
        total=num(0, multipleOf=0.01),
    ),
    "recipe": obj(
        title=TEXT,
        servings=whole(1, 12),
        ingredients=arr(obj("name amount", name=TEXT, amount=NUMBER, unit=enum("g", "ml", "piece")), 1, 3),
        steps=arr(TEXT, 1, 3),
    ),
    "quiz": obj(question=TEXT, options=arr(TEXT, 2, 4), correct=whole(0, 3)),
    "flash cards": arr(obj(front=text(minLength=1), back=text(minLength=1)), 1, 3),
    "summary": obj(title=text(maxLength=30), bullets=arr(text(maxLength=30), 1, 5), words=whole(0, 500)),
    "translation": obj(source=enum("de", "en", "fr"), target=enum("de", "en", "fr"), text=TEXT),
    "code review": obj(
        findings=arr(
            obj("file line severity", file=TEXT, line=whole(1), severity=enum("low", "medium", "high"), fix=TEXT), 0, 2
        ),
        approve=BOOL,
    ),
    "test cases": arr(obj("input expected", input=TEXT, expected=TEXT, edge=BOOL), 1, 2),
    "bug report": obj(
        "summary severity",
        summary=text(maxLength=30),
        severity=whole(1, 5),
        steps=arr(TEXT, 0, 2),
        version=text(pattern=r"^v\d+\.\d+$"),
    ),
    "ticket": obj(
        "queue priority",
        queue=enum("billing", "technical"),
        priority=enum(1, 2, 3),
        tags=arr(text(pattern="^[a-z]+$"), 0, 3),
        assignee=maybe(EMAIL),
    ),
    "plan": defs(
        obj(goal=TEXT, tasks=arr(ref("task"), 1, 3)),
        task=obj("id title", id=whole(1), title=TEXT, after=arr(whole(1), 0, 2), done=BOOL),
    ),
    "agent action": obj(
        thought=TEXT,
        action=enum("click", "type", "scroll", "finish"),
        target=maybe(obj(x=whole(0, 1920), y=whole(0, 1080))),
    ),
    "grading": obj(scores=obj(style=whole(1, 10), content=whole(1, 10), overall=num(1, 10)), comment=TEXT),
    "medical note": obj(
        "patient",
        patient=obj(id=text(pattern="^P[0-9]{4}$"), born=DAY),
        diagnoses=arr(obj(code=text(pattern=r"^[A-Z][0-9]{2}(\.[0-9])?$"), certain=BOOL), 0, 2),
    ),
    "contract clause": obj(
        parties=arr(TEXT, 2, 3),
        effective=DAY,
        term=text(format="duration"),
        clauses=arr(obj(number=whole(1), text=TEXT), 1, 2),
    ),
    "table": obj(columns=arr(TEXT, 1, 3), rows=arr(arr({"type": ["string", "number", "null"]}, 1, 3), 0, 2)),
    "timeline": arr(obj("date event", date=DAY, event=TEXT, source=maybe(URI)), 1, 3),
    "poem": obj(lines=arr(text(minLength=1, maxLength=30), 2, 4), rhymes=BOOL),
    "chess move": obj(move=text(pattern="^([KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](=[QRBN])?[+#]?|O-O(-O)?)$"), score=INT),
    "regular words": arr(text(pattern=r"^[a-z]{2,6}(-[a-z]{2,6})?$"), 1, 4),
    "languages": {
        "type": "object",
        "properties": {"en": TEXT, "日本語": TEXT, 'naïve "quoted"': TEXT},
        "required": ["en"],
        "additionalProperties": False,
    },
}
