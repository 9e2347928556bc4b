"""The page's files: what they may load, and that a model's text is never markup."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from dgpp.serve.page.page import FILES
from tests.serve.support import Bench

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in FILES)])
def test_page_is_served_without_a_key_and_under_a_policy(bench: Callable[..., Bench], path: str) -> None:
    reply = bench(api_key="secret").client.get(path)
    assert reply.status_code == 200
    assert reply.headers["Content-Security-Policy"].startswith(POLICY)
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["page.py", "__init__.py", "chat.html", "../app.py", "..%2fapp.py", ""])
def test_page_serves_its_files_and_no_others(bench: Callable[..., Bench], name: str) -> None:
    assert bench().client.get(f"/page/{name}").status_code == 404


def test_page_needs_nothing_from_elsewhere(bench: Callable[..., Bench]) -> None:
    client = bench().client
    page = client.get("/").get_data(as_text=True)
    for path in re.findall(r'(?:src|href)="([^"#][^"]*)"', page):
        assert client.get(path).status_code == 200, path
    everything = page + "".join(client.get(f"/page/{name}").get_data(as_text=True) for name in FILES)
    addresses = set(re.findall(r"https?://[^\"' ]+", everything))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address that is fetched
    assert "<script>" not in page
    assert " style=" not in page


def test_page_shows_text_as_text(bench: Callable[..., Bench]) -> None:
    client = bench().client
    for name in FILES:
        text = client.get(f"/page/{name}").get_data(as_text=True)
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
            assert unsafe not in text, (name, unsafe)


def test_page_labels_every_control(bench: Callable[..., Bench]) -> None:
    page = bench().client.get("/").get_data(as_text=True)
    labelled = set(re.findall(r'<label for="([^"]+)"', page))
    for tag, attributes in re.findall(r"<(input|select|textarea)\b([^>]*)>", page):
        id = re.search(r'id="([^"]+)"', attributes)
        assert id is not None, tag
        before = page[: page.index(f'id="{id[1]}"')]
        inside = before.rfind("<label") > before.rfind("</label>")
        assert inside or id[1] in labelled or "aria-label=" in attributes, id[1]
