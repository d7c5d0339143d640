"""Chromium without a window, and pages that open from disk in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; no browser tests")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = '</script><script>document.title="owned"</script><img src="http://127.0.0.1/x" onerror="alert(1)">'
Open = Callable[..., Any]


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium without a window; where there is none, these tests skip."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser found ({', '.join(BROWSERS)}): install one to test the pages in it")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def opening(browser: Any, pages: Mapping[str, Path]) -> Iterator[Open]:
    """Opens pages from disk; at the end nothing may have been fetched, and nothing complained."""
    asked, complaints, contexts = [], [], []

    def open_one(name: str = "whole", width: int = 1200, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(pages[name].as_uri())
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert set(asked) <= {path.as_uri() for path in pages.values()}
    assert complaints == []


def wait_until(page: Any, condition: str, value: Any = None) -> None:
    """Until a function of the page is true. Asked from outside: the pages' policy forbids them to evaluate texts."""
    for _ in range(100):
        if page.evaluate(condition, value):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within five seconds: {condition}")
