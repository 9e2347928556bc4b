"""The page in a headless Chromium: `python -m pytest -m slow tests/serve/test_page_browser.py -rs`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dgpp.serve.server import HttpServer
from tests.serve.support import MARKERS, Bench, eventually, ids
from tests.serve.wire import Serving
from tests.text.templates import QWEN38

pytestmark = pytest.mark.slow

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
MARKUP = "<img src=x onerror=\"document.title='owned'\"><b>bold</b> & <script>document.title='owned'</script>"
TOOL = """[{"type": "function", "function": {"name": "weather", "parameters":
{"type": "object", "properties": {"city": {"type": "string"}}}}}]"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium of this machine."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("the package playwright is not installed: pip install playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, serving: Serving) -> Iterator[Callable[..., tuple[Any, Bench, HttpServer]]]:
    """Opens the page of a new server; errors of the page and addresses outside the server fail the test."""
    pages: list[tuple[Any, str, list[str], list[str]]] = []

    def open_page(*args: Any, **kwargs: Any) -> tuple[Any, Bench, HttpServer]:
        made, server = serving(*args, **kwargs)
        page = browser.new_context().new_page()
        errors: list[str] = []
        asked: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(20_000)
        page.goto(server.url)
        pages.append((page, server.url, errors, asked))
        return page, made, server

    yield open_page
    for page, url, errors, asked in pages:
        page.close()
        assert errors == []
        assert [each for each in asked if not each.startswith(url)] == []


def until(page: Any, condition: str) -> None:
    """Waits for a JavaScript condition. The page's policy forbids what playwright does for that by itself."""
    assert eventually(lambda: bool(page.evaluate(condition)), 20), condition


def say(page: Any, text: str) -> None:
    page.wait_for_selector("#model option", state="attached")
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def test_page_streams_an_answer_as_text(opened: Any) -> None:
    page, made, _ = opened(MARKUP, step_seconds=0.005)
    say(page, "<i>hi</i>")
    page.wait_for_selector(".figures")
    assert page.inner_text(".turn.user .text") == "<i>hi</i>"
    assert page.inner_text(".turn.assistant .text") == MARKUP
    assert page.query_selector("#log img, #log b, #log i, #log script") is None
    assert page.title() == "dgpp"
    figures = page.inner_text(".figures")
    assert f"{len(ids(MARKUP)) + 1} tokens" in figures
    assert "tokens/s" in figures
    assert "0 from the cache" in figures
    assert page.evaluate("document.activeElement.id") == "prompt"
    assert made.counts()["rejects_bad"] == 0


def test_page_sends_its_history_and_settings(opened: Any) -> None:
    page, made, _ = opened("ok")
    page.click("#options-button")
    assert page.get_attribute("#options-button", "aria-expanded") == "true"
    page.fill("#system", "Be brief.")
    page.fill("#temperature", "0.5")
    page.fill("#limit", "7")
    for place, text in enumerate(("one", "two\nlines")):
        say(page, text)
        page.locator(".figures").nth(place).wait_for()  # an answer is complete before the next is asked for
    assert made.prompts()[-1] == "system\nBe brief.\nuser\none\nassistant\nok\nuser\ntwo\nlines\nassistant\n"
    assert made.engine.requests[-1].sampling.temperature == 0.5
    assert made.engine.requests[-1].max_tokens == 7
    page.keyboard.press("Alt+n")
    say(page, "three")
    page.wait_for_selector(".figures")
    assert made.prompts()[-1] == "system\nBe brief.\nuser\nthree\nassistant\n"


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_page_stops_an_answer(opened: Any, how: str) -> None:
    page, made, _ = opened("x" * 200, step_seconds=0.05)
    say(page, "go on")
    until(page, "document.querySelector('.turn.assistant .text')?.textContent.length > 3")
    if how == "button":
        page.click("#stop")
    else:
        page.keyboard.press("Escape")
    page.wait_for_selector(".figures")
    assert "stopped" in page.inner_text(".figures")
    assert 3 < len(page.inner_text(".turn.assistant .text")) < 200
    until(page, "!document.getElementById('send').hidden")
    assert eventually(lambda: made.counts()["requests_cancelled"] == 1)


def test_page_folds_reasoning_away_and_shows_calls(opened: Any) -> None:
    call = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    wide = Bench.info(position_ceiling=4096)
    script = f"Let me see.\n</think>\n\nOne moment.\n\n{call}"
    page, _, _ = opened(script, template=QWEN38, markers=MARKERS, info=wide)
    page.click("#options-button")
    page.fill("#tools", TOOL)
    say(page, "How is the weather?")
    page.wait_for_selector(".figures")
    folded = page.locator(".turn.assistant details")
    assert folded.get_attribute("open") is None
    assert not folded.locator(".text").is_visible()
    folded.locator("summary").click()
    assert folded.locator(".text").inner_text() == "Let me see."
    assert "weather" in page.inner_text(".call strong")
    assert '"city": "Paris"' in page.inner_text(".call pre")


def test_page_asks_for_a_key(opened: Any) -> None:
    page, _, _ = opened("ok", api_key="secret")
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key", "wrong")
    page.press("#key", "Enter")
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key", "secret")
    page.press("#key", "Enter")
    page.wait_for_selector("#key-form", state="hidden")
    say(page, "hi")
    page.wait_for_selector(".figures")
    assert page.inner_text(".turn.assistant .text") == "ok"


def test_page_shows_what_went_wrong(opened: Any) -> None:
    page, made, _ = opened("word " * 40, step_seconds=0.05)
    say(page, "refuse")
    page.wait_for_selector(".error")
    assert "refuses" in page.inner_text(".error")
    say(page, "hi")
    until(page, "document.querySelectorAll('.turn.assistant .text').length == 1")
    made.engine.fail("secret")
    until(page, "document.querySelectorAll('.error').length == 2")
    assert "secret" not in page.inner_text("#log")


def test_page_is_readable_in_the_dark(opened: Any) -> None:
    page, _, _ = opened("ok")

    def colours() -> list[str]:
        script = "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] })()"
        found: list[str] = page.evaluate(script)
        return found

    page.emulate_media(color_scheme="light")
    light = colours()
    page.emulate_media(color_scheme="dark")
    dark = colours()
    assert dark != light
    page.click("#options-button")
    page.select_option("#theme", "light")
    assert colours() == light
    page.reload()
    assert colours() == light  # it is remembered
