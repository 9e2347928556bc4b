from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import dgpp
from dgpp.engine.engine import LocalEngine
from dgpp.engine.pages import OutOfPages
from dgpp.engine.request import Request, Sampling, TokenEvent
from dgpp.kernels.rows import Phase
from dgpp.lab.model import Model

TEXT = "The quick brown fox jumps"


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def test_K1_importing_the_package_imports_no_jax() -> None:
    code = "import dgpp, sys; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_load_without_a_name_opens_the_embedded_model(embedded: Model) -> None:
    assert callable(dgpp.load)
    assert embedded.name == "embedded"
    assert "embedded: llama, 4 layers" in repr(embedded)


def test_K4_forward_gives_the_logits_of_the_served_step(embedded: Model) -> None:
    forward = embedded.forward(TEXT)
    assert forward.logits.shape == (len(forward.ids), embedded.config.vocab_size)
    assert forward.logits.dtype == np.float32
    with embedded.session(len(forward.ids)) as s:
        assert bits(s.last(forward.ids)) == bits(forward.logits[-1])


def test_activations_come_by_name_and_change_nothing(embedded: Model) -> None:
    plain = embedded.forward(TEXT)
    one = embedded.forward(TEXT, capture="layers.*.attn.*")
    two = embedded.forward(TEXT, capture=["layers.2.out", "embed"])
    tokens, config = len(plain.ids), embedded.config
    assert set(one.activations) == {f"layers.{i}.attn.{n}" for i in range(4) for n in ("q", "k", "v", "mix", "out")}
    assert one.activations["layers.3.attn.q"].shape == (tokens, config.num_attention_heads, config.head_dim)
    assert set(two.activations) == {"layers.2.out", "embed"}
    assert bits(plain.logits) == bits(one.logits) == bits(two.logits)


def test_cuts_change_nothing(embedded: Model) -> None:
    whole = embedded.forward(TEXT, capture=["layers.3.out", "embed"])
    cut = embedded.forward(TEXT, capture=["layers.3.out", "embed"], cuts=(5, 1, 2))
    assert bits(cut.logits) == bits(whole.logits)
    assert bits(cut.activations["layers.3.out"]) == bits(whole.activations["layers.3.out"])
    with pytest.raises(ValueError, match=r"cuts \[0\] must lie between"):
        embedded.forward(TEXT, cuts=(0,))


def test_a_failed_forward_leaves_no_slot_and_no_page_behind(embedded: Model) -> None:
    with pytest.raises(KeyError, match=r"no activation matches 'layers\.9"):
        embedded.forward(TEXT, capture="layers.9.out")
    with pytest.raises(OutOfPages):
        embedded.forward([1] * 500)
    with pytest.raises(OutOfPages):
        embedded.generate(TEXT, 500)
    assert embedded.core.pool.in_use == 0
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(embedded.session(8))
        with pytest.raises(ValueError, match="all 4 slots are in use"):
            stack.enter_context(embedded.session(8))
    assert embedded.core.pool.in_use == 0


def test_a_session_beside_another_sees_nothing_of_it(embedded: Model) -> None:
    ids = embedded.ids(TEXT)
    with embedded.session(32) as one, embedded.session(32) as other:
        first = one.last(ids)
        other.last(ids[:3])
        assert bits(other.last(ids[3:])) == bits(first)
        assert one.slot != other.slot


@pytest.mark.parametrize("prompt", ["", [], [-1], [2048]])
def test_a_prompt_that_cannot_be_used_says_why(embedded: Model, prompt: Any) -> None:
    with pytest.raises(ValueError, match=r"empty|outside the vocabulary"):
        embedded.forward(prompt)


def test_messages_are_rendered_by_the_template(embedded: Model) -> None:
    messages = [{"role": "user", "content": "Hello <|im_end|>"}]
    text = embedded.render(messages)
    assert text == "<|im_start|>user\nHello <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    ids = embedded.ids(messages)
    end = embedded.tokenizer.token_id("<|im_end|>")
    assert ids.count(end) == 1  # what the user typed is text
    assert embedded.tokenizer.decode(ids, special=True) == text


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.9, "seed": 5}, {"temperature": 1.2, "top_p": 0.8, "repetition_penalty": 1.3, "seed": 6}],
)
def test_generate_gives_the_tokens_of_the_engine(embedded: Model, sampling: dict[str, Any]) -> None:
    ids = embedded.ids(TEXT)
    found = embedded.generate(ids, 12, ignore_eos=True, **sampling)
    engine = LocalEngine(embedded.core)
    try:
        handle = engine.submit(Request(ids, 12, ignore_eos=True, sampling=Sampling(**sampling)))[0]
        expected = [event.token for event in handle.events() if isinstance(event, TokenEvent)]
    finally:
        engine.shutdown()
    assert list(found.ids) == expected
    assert found.finish_reason == "length"


def test_generate_ends_at_a_stop_string_and_at_the_end_of_sequence(embedded: Model) -> None:
    whole = embedded.generate(TEXT, 12)
    assert whole.text == embedded.tokenizer.decode(whole.ids, at_start=False)
    middle = whole.text[len(whole.text) // 2 :][:3]
    cut = embedded.generate(TEXT, 12, stop=middle)
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(middle)]
    biased = embedded.generate(TEXT, 12, logit_bias=((next(iter(embedded.eos)), 100.0),))
    assert (biased.finish_reason, biased.text, len(biased.ids)) == ("stop", "", 1)


def test_generate_lists_log_probabilities_of_the_forward(embedded: Model) -> None:
    text = embedded.generate(TEXT, 3, logprobs=2)
    logits = embedded.forward(embedded.ids(TEXT) + text.ids[:-1]).logits[-3:].astype(np.float64)
    expected = logits.max(axis=1) - np.log(np.exp(logits).sum(axis=1))
    assert [entry.top[0][0] for entry in text.logprobs] == list(text.ids)
    np.testing.assert_allclose([entry.logprob for entry in text.logprobs], expected, rtol=1e-6)


def test_generate_names_a_setting_that_cannot_be_used(embedded: Model) -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        embedded.generate(TEXT, 0)
    with pytest.raises(ValueError, match="top_p"):
        embedded.generate(TEXT, 1, top_p=2.0)
    with pytest.raises(TypeError, match="heat"):
        embedded.generate(TEXT, 1, heat=1.0)


def test_logits_that_are_not_numbers_are_an_error(embedded: Model) -> None:
    class NotNumbers:
        settings = embedded.core.settings

        def step(self, segments: Any) -> Any:
            return type("Result", (), {"picks": np.array([-1])})

    with embedded.session(4) as s:
        s.core = NotNumbers()  # type: ignore[assignment]
        from dgpp.lab.model import _next

        with pytest.raises(ArithmeticError, match="position 1 are not numbers"):
            _next(s, (1,), Phase.PREFILL, None)


def test_the_tree_is_shown_in_a_terminal_and_in_a_notebook(
    embedded: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    embedded.show()
    assert "layers.down_proj" in capsys.readouterr().out
    html = embedded._repr_html_()
    assert html.count("<tr>") == 1 + 11 + 1
    assert "model.layers.{layer}.mlp.down_proj" in html
    assert f"{sum(s.info.nbytes for s in embedded.checkpoint.tensors.values()):,}" in html
