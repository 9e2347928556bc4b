"""Golden renderings: tool and thinking histories as each family's published encoder writes them.

`python -m tests.text.renderings` writes the goldens anew.
"""

from __future__ import annotations

import pytest

from dgpp.text.events import Call
from dgpp.text.segments import joined
from dgpp.text.tools.dialect import dialect_of
from tests.text.renderings import CONTROL, ENCODERS, GOLDENS, VARIANTS, golden, rendered, tokenizer_of

families = pytest.mark.parametrize("family", ENCODERS)


@families
def test_renderings_are_golden(family: str) -> None:
    assert golden(family) == (GOLDENS / f"{family}.txt").read_text(encoding="utf-8")


@families
@pytest.mark.parametrize("variant", VARIANTS)
def test_Z1_control_tokens_that_somebody_typed_stay_text(family: str, variant: str) -> None:
    tokenizer = tokenizer_of(CONTROL[family])
    control = frozenset(tokenizer.control_tokens.values())
    typed = " ".join(["", *CONTROL[family]])
    clean, dirty = (tokenizer.encode_segments(rendered(family, variant, text)) for text in ("", typed))
    assert [id for id in dirty if id in control] == [id for id in clean if id in control]
    assert joined(rendered(family, variant, typed)).count(typed) >= (9 if VARIANTS[variant][1] else 4)


@families
def test_L13_calls_of_the_history_are_written_in_the_format_that_the_encoder_tells(family: str) -> None:
    control = tokenizer_of(CONTROL[family]).control_tokens
    dialect = dialect_of(ENCODERS[family].source, control)
    assert dialect is not None
    calls = [Call("weather", '{"city": "São Paulo", "days": 2, "tags": ["x"], "k": null}'), Call("now", "{}")]
    assert dialect.render(calls) in joined(rendered(family, "tools"))
