"""chat_template_kwargs of a request and of the server (spec/api.md §5.4), down to the prompt that the engine gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dgpp.cli import main as cli
from dgpp.serve.requests.thinking import Controls, default_template_kwargs
from tests.serve.support import MARKERS, NAME, Bench, chat
from tests.text.templates import QWEN38

ON, OFF = "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"
SWITCH_ONLY = "{{ thinking is defined and thinking }}"
AT = "chat_template_kwargs"
UNSUPPORTED, EFFORT = "unsupported_parameter", "unsupported_reasoning_effort"


def prompt(made: Bench, **kwargs: Any) -> str:
    """What a request with these chat_template_kwargs makes the engine read."""
    reply = made.client.post("/v1/chat/completions", json=chat(**{AT: kwargs} if kwargs else {}))
    assert reply.status_code == 200, reply.get_data(as_text=True)
    return made.prompts()[-1]


def test_T12_the_thinking_switch_of_a_request(bench: Callable[..., Bench]) -> None:
    made = bench(template=QWEN38)
    assert prompt(made).endswith(ON)
    assert prompt(made, enable_thinking=True).endswith(ON)
    assert prompt(made, enable_thinking=False).endswith(OFF)
    assert prompt(made, thinking=False).endswith(OFF)
    assert prompt(made, thinking=False, enable_thinking=False).endswith(OFF)


def test_the_switch_goes_by_the_name_that_the_template_has_for_it(bench: Callable[..., Bench]) -> None:
    made = bench(template=SWITCH_ONLY)
    assert [prompt(made), prompt(made, enable_thinking=True), prompt(made, thinking=False)] == [
        "False",
        "True",
        "False",
    ]


def test_an_effort_reaches_the_template_and_turns_thinking_on(bench: Callable[..., Bench]) -> None:
    made = bench(template=QWEN38, template_kwargs='{"enable_thinking": false}')
    assert prompt(made).endswith(OFF)
    low = prompt(made, reasoning_effort="low")
    assert "Think no longer than you must." in low
    assert low.endswith(ON)
    assert prompt(made, reasoning_effort="none").endswith(OFF)


def test_history_controls_pass_and_have_no_effect_where_they_are_not_read(bench: Callable[..., Bench]) -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1", "reasoning_content": "a secret thought"},
        {"role": "user", "content": "two"},
    ]
    made = bench(template=QWEN38)
    for kwargs in ({}, {"preserve_thinking": False}, {"clear_thinking": True, "drop_thinking": False}):
        made.client.post("/v1/chat/completions", json=chat(messages=messages, **{AT: kwargs}))
    assert ["a secret thought" in text for text in made.prompts()] == [True, False, True]


@pytest.mark.parametrize(
    ("value", "code", "key"),
    [
        ("no", None, ""),
        ([], None, ""),
        ({"a": 1}, UNSUPPORTED, "a"),
        ({"tools": []}, UNSUPPORTED, "tools"),
        ({"messages": []}, UNSUPPORTED, "messages"),
        *[({"enable_thinking": value}, None, "enable_thinking") for value in (None, 0, "false", {})],
        ({"preserve_thinking": "yes"}, None, "preserve_thinking"),
        ({"enable_thinking": True, "thinking": False}, None, "thinking"),
        ({"reasoning_effort": "enormous"}, None, "reasoning_effort"),
        ({"reasoning_effort": None}, None, "reasoning_effort"),
        ({"reasoning_effort": ["low"]}, None, "reasoning_effort"),
        ({"reasoning_effort": "none", "enable_thinking": True}, None, "enable_thinking"),
        ({"reasoning_effort": "low", "thinking": False}, None, "enable_thinking"),
    ],
    ids=json.dumps,
)
def test_api_5_4_refused(bench: Callable[..., Bench], value: Any, code: str | None, key: str) -> None:
    made = bench(template=QWEN38)
    error = made.client.post("/v1/chat/completions", json=chat(**{AT: value})).get_json()["error"]
    assert (error["code"], error["param"]) == (code, f"{AT}.{key}" if key else AT)
    assert made.engine.requests == []


@pytest.mark.parametrize(
    ("template", "value", "code", "key"),
    [
        ("{{ messages }}", {"enable_thinking": True}, UNSUPPORTED, "enable_thinking"),
        ("{{ messages }}", {"thinking": False}, UNSUPPORTED, "thinking"),
        ("{{ messages }}", {"reasoning_effort": "low"}, EFFORT, "reasoning_effort"),
    ],
)
def test_api_5_4_what_a_template_does_not_read_is_refused(
    bench: Callable[..., Bench], template: str, value: Any, code: str, key: str
) -> None:
    error = bench(template=template).client.post("/v1/chat/completions", json=chat(**{AT: value})).get_json()["error"]
    assert (error["code"], error["param"]) == (code, f"{AT}.{key}")


def test_api_2_a_key_given_twice(bench: Callable[..., Bench]) -> None:
    raw = json.dumps(chat())[:-1] + f', "{AT}": {{"thinking": true, "thinking": true}}}}'
    error = bench(template=QWEN38).client.post("/v1/chat/completions", data=raw).get_json()["error"]
    assert (error["code"], error["param"]) == ("invalid_parameter", f"{AT}.thinking")


GLM = "{% if reasoning_effort == 'low' %}Low{% elif reasoning_effort == 'high' %}High{% else %}Max{% endif %}"
PLAIN = "{{ reasoning_effort }}"
SWITCH = "{{ enable_thinking | default(true) }}"


@pytest.mark.parametrize(
    ("template", "efforts"),
    [
        (GLM, {"low": "Low", "minimal": "Low", "medium": "High", "high": "High", "xhigh": "Max", "max": "Max"}),
        (PLAIN, {word: word for word in ("minimal", "low", "medium", "high", "xhigh", "max")}),
        (SWITCH, {"none": "False", "minimal": "True", "max": "True"}),
    ],
)
def test_api_5_4_efforts_are_mapped_to_what_the_template_knows(
    bench: Callable[..., Bench], template: str, efforts: dict[str, str]
) -> None:
    made = bench(template=template)
    for effort, expected in efforts.items():
        assert made.client.post("/v1/chat/completions", json=chat(reasoning_effort=effort)).status_code == 200
        assert made.prompts()[-1] == expected
        assert prompt(made, reasoning_effort=effort) == expected


def test_api_5_4_qwen_efforts(bench: Callable[..., Bench]) -> None:
    made = bench(template=QWEN38)
    mapping = made.client.get(f"/v1/models/{NAME}").get_json()["reasoning"]["effort_mapping"]
    assert mapping == {
        "none": {"enable_thinking": False},
        **{word: {"reasoning_effort": "low", "enable_thinking": True} for word in ("minimal", "low")},
        "medium": {"reasoning_effort": "medium", "enable_thinking": True},
        **{word: {"reasoning_effort": "xhigh", "enable_thinking": True} for word in ("high", "xhigh", "max")},
    }


def test_api_5_4_a_model_that_always_thinks_cannot_be_told_not_to(bench: Callable[..., Bench]) -> None:
    for markers, status in ((MARKERS, 400), ((), 200)):
        reply = bench(template=GLM, markers=markers).client.post(
            "/v1/chat/completions", json=chat(reasoning_effort="none")
        )
        assert reply.status_code == status
    assert bench(template=GLM, markers=MARKERS).client.get(f"/v1/models/{NAME}").get_json()["reasoning"][
        "effort_mapping"
    ].keys() == {"minimal", "low", "medium", "high", "xhigh", "max"}


@pytest.mark.parametrize("value", ["enormous", 3, [], {}, True])
def test_api_5_4_an_effort_that_does_not_exist(bench: Callable[..., Bench], value: Any) -> None:
    error = (
        bench(template=QWEN38)
        .client.post("/v1/chat/completions", json=chat(reasoning_effort=value))
        .get_json()["error"]
    )
    assert (error["code"], error["param"]) == (None, "reasoning_effort")


def test_T12_the_effort_of_a_request_wins_over_its_kwargs_and_those_over_the_server(
    bench: Callable[..., Bench],
) -> None:
    made = bench(template=QWEN38, template_kwargs='{"enable_thinking": false}')
    off = {AT: {"enable_thinking": False}}
    for fields, ending, instruction in (
        ({}, OFF, None),
        ({AT: {"enable_thinking": True}}, ON, "as long as it takes"),
        ({**off, "reasoning_effort": "high"}, ON, "as long as it takes"),
        ({AT: {"reasoning_effort": "low"}, "reasoning_effort": "high"}, ON, "as long as it takes"),
        ({AT: {"reasoning_effort": "high"}, "reasoning_effort": "none"}, OFF, None),
        ({AT: {"reasoning_effort": "low"}}, ON, "no longer than you must"),
    ):
        assert made.client.post("/v1/chat/completions", json=chat(**fields)).status_code == 200
        assert made.prompts()[-1].endswith(ending)
        assert (instruction or "assistant") in made.prompts()[-1]
        assert ("Think" in made.prompts()[-1]) is (instruction is not None)
    shown = made.client.get(f"/v1/models/{NAME}").get_json()["reasoning"]["template_variables"]
    assert shown == {"enable_thinking": False}


def test_T12_a_request_wins_over_the_server_key_by_key(bench: Callable[..., Bench]) -> None:
    given = '{"thinking": false, "preserve_thinking": false}'
    made = bench(template=QWEN38, template_kwargs=given)
    assert prompt(made).endswith(OFF)
    assert prompt(made, preserve_thinking=True).endswith(OFF)
    assert prompt(made, enable_thinking=True).endswith(ON)
    reported = made.client.get(f"/v1/models/{NAME}").get_json()
    assert reported["default_chat_template_kwargs"] == json.loads(given)


def test_without_server_defaults_none_are_reported(bench: Callable[..., Bench]) -> None:
    assert bench().client.get("/v1/models").get_json()["data"][0]["default_chat_template_kwargs"] == {}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("thinking", r"^the default chat_template_kwargs must be a JSON object, got 'thinking'$"),
        ("[]", "must be a JSON object"),
        ('{"a": 1}', r"^default chat_template_kwargs: chat_template_kwargs\.a is not supported\.$"),
        ('{"thinking": 1}', "thinking must be true or false"),
        ('{"thinking": true, "thinking": true}', "given twice"),
        ('{"reasoning_effort": "lots"}', "must be one of none, minimal"),
    ],
)
def test_wrong_server_defaults_end_the_start(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        default_template_kwargs(text, Controls(frozenset({"messages", "enable_thinking"})))


def test_wrong_server_defaults_on_the_command_line_are_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--default-chat-template-kwargs", '{"enable_thinking": false}'])
    assert ended.value.code == 2
    assert "no thinking switch" in capsys.readouterr().err
