"""Chromium without a window, and pages that open from disk in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
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
    """Opens pages from disk, one after the other; at the end nothing may have been fetched, and nothing complained."""
    asked, complaints = [], []
    listeners = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: (complaints.append(dialog.message), dialog.dismiss()),
    }
    tab = _tab(browser)
    for event, listener in listeners.items():
        tab.on(event, listener)

    def open_one(name: str = "whole", width: int = 1200, scheme: str = "light") -> Any:
        tab.goto("about:blank")
        tab.mouse.move(0, 0)
        tab.set_viewport_size({"width": width, "height": 800})
        tab.emulate_media(media="null", color_scheme=scheme)
        tab.goto(pages[name].as_uri())
        return tab

    yield open_one
    tab.goto("about:blank")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert set(asked) <= {path.as_uri() for path in pages.values()}
    assert complaints == []


@cache
def _tab(browser: Any) -> Any:
    """One for all pages: a browser starts a process for each, which takes longer than a page."""
    return browser.new_context().new_page()


def wait_until(page: Any, condition: str, value: Any = None) -> None:
    """Until a function of the page is true. Asked from outside: the pages' policy forbids them to evaluate texts."""
    for _ in range(100):
        if page.evaluate(condition, value):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within five seconds: {condition}")


def serious_barriers(page: Any) -> list[Any]:
    """What axe finds on a page with all its parts unfolded that keeps someone from using it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    found = axe.Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in serious]
