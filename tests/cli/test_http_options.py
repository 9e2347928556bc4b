"""Every setting of the HTTP side is a flag of `dgpp serve`, with the same default."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from dgpp.cli.http_options import HELP, http_settings, takes_http_options
from dgpp.serve.settings import Settings

DEFAULTS = {field.name: field.default for field in fields(Settings)}


def parsed(*arguments: str) -> Settings:
    """The settings that a command gets from a command line."""
    seen: list[Settings] = []
    app = typer.Typer()

    @app.command()
    @takes_http_options
    def command(*, settings: Settings) -> None:
        seen.append(settings)

    result = CliRunner().invoke(app, list(arguments))
    if result.exit_code:
        raise ValueError(result.output)
    return seen[0]


def test_every_setting_has_a_flag_and_its_help() -> None:
    assert list(HELP) == list(DEFAULTS)
    assert http_settings(DEFAULTS) == Settings()


def test_flags_reach_the_settings() -> None:
    given = parsed(
        *("--host", "::1", "--port", "0", "--cors-origin", "https://a.example", "--cors-origin", "*"),
        *("--drain-seconds", "2.5", "--overload-status", "429", "--reasoning-in-content", "--api-key", "k"),
    )
    assert (given.host, given.port, given.cors_origins) == ("::1", 0, ("https://a.example", "*"))
    assert (given.drain_seconds, given.overload_status, given.reasoning_in_content) == (2.5, 429, True)
    assert given.api_key == "k"


@pytest.mark.parametrize(
    "wrong", [("--overload-status", "500"), ("--cors-origin", "a.example"), ("--write-timeout", "0"), ("--port", "x")]
)
def test_a_setting_that_cannot_work_is_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=wrong[0][2:].split("-")[0]):
        parsed(*wrong)
