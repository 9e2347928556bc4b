"""What a Qwen release says of its own answers: where they end, and how tokens are drawn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dgpp.checkpoint.config import eos_ids, read_json
from dgpp.checkpoint.reader import Checkpoint
from dgpp.serve.requests.decoding import sampling_defaults
from tests.models.qwen import MODELS, directory_of
from tests.serve.support import NAME, Bench, chat

GENERATION = {"do_sample": True, "temperature": 1.0, "top_k": 20, "top_p": 0.95, "eos_token_id": [246, 244]}
"""generation_config.json as the releases have it, with ids of a small vocabulary."""


@pytest.fixture(params=MODELS, ids="/".join)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    """A release whose generation_config.json and text_config name different ends."""
    directory = tmp_path / "model"
    shutil.copytree(directory_of(*request.param), directory)
    config = read_json(directory / "config.json")
    config["text_config"]["eos_token_id"] = 244
    (directory / "config.json").write_text(json.dumps({**config, "eos_token_id": 243}))
    (directory / "generation_config.json").write_text(json.dumps(GENERATION))
    return Checkpoint.open(directory)


def test_an_answer_ends_with_every_id_that_one_of_the_config_files_names(release: Checkpoint) -> None:
    turn = read_json(release.directory / "tokenizer_config.json")["eos_token"]
    [tokenizer] = [
        token["id"]
        for token in read_json(release.directory / "tokenizer.json")["added_tokens"]
        if token["content"] == turn
    ]
    assert eos_ids(release) == {243, 244, 246, tokenizer}


def test_a_request_without_a_temperature_is_sampled_as_the_release_says(
    release: Checkpoint, bench: Callable[..., Bench]
) -> None:
    made = bench(defaults=sampling_defaults(release.generation_config))
    body = chat()
    del body["temperature"]
    assert made.client.post("/v1/chat/completions", json=body).status_code == 200
    assert made.client.post("/v1/chat/completions", json=chat(top_k=3)).status_code == 200
    drawn, greedy = (request.sampling for request in made.engine.requests)
    assert (drawn.temperature, drawn.top_k, drawn.top_p) == (1.0, 20, 0.95)
    assert (greedy.temperature, greedy.top_k, greedy.top_p) == (0.0, 3, 0.95)
    reported = made.client.get(f"/v1/models/{NAME}").get_json()["sampling"]["defaults"]
    assert (reported["temperature"], reported["top_k"], reported["top_p"]) == (1.0, 20, 0.95)
