"""SmolLM2 behind `dgpp serve`, through the official client."""

from __future__ import annotations

import openai
import pytest

from tests.real.smollm2 import snapshot
from tests.serve.company import QUESTIONS, check_company
from tests.serve.served import served

pytestmark = pytest.mark.real


def test_smollm2_answers_in_english_and_the_same_to_everybody() -> None:
    with served(str(snapshot()), "--served-model-name", "smollm2", "--kv-capacity", "2048") as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
        answer = client.chat.completions.create(
            model="smollm2", temperature=0, max_tokens=32, messages=[{"role": "user", "content": QUESTIONS[0]}]
        )
        text = answer.choices[0].message.content or ""
        assert "The capital of France is Paris" in text
        assert answer.choices[0].finish_reason == "stop"
        check_company(url, "smollm2", 2048, most=16)
