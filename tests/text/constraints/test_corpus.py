"""Every schema of the corpus is enforced, so that all answers drawn through the masks are valid under `jsonschema`, or
refused naming the keyword (cases J4, J8)."""

from __future__ import annotations

from typing import Any

import pytest

from dgpp.text.constraints import GrammarError
from tests.text.constraints.corpus import ENFORCED, REFUSED
from tests.text.constraints.support import check, samples

FEW, MANY = 3, 60


def test_J8_corpus_has_two_hundred_schemas() -> None:
    assert len(ENFORCED) + len(REFUSED) >= 200


@pytest.mark.parametrize("name", ENFORCED)
def test_J8_corpus_is_enforced(name: str) -> None:
    for answer in samples(ENFORCED[name], FEW):
        check(ENFORCED[name], answer)


@pytest.mark.parametrize("name", REFUSED)
def test_J8_corpus_is_refused_by_name(name: str) -> None:
    at, schema = REFUSED[name]
    with pytest.raises(GrammarError) as refused:
        samples(schema, 1)
    assert refused.value.pointer == f"response_format.json_schema.schema.{at}"
    assert refused.value.code == "unsupported_schema"
    assert at.rsplit(".", 1)[-1] in refused.value.message


@pytest.mark.slow
@pytest.mark.parametrize("name", ENFORCED)
def test_J8_corpus_is_enforced_in_many_answers(name: str) -> None:
    answers: list[Any] = samples(ENFORCED[name], MANY)
    for answer in answers:
        check(ENFORCED[name], answer)
