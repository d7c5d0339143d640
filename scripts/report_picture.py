"""The picture of the README, docs/images/report.png: findings and first charts of the demo's report, in a browser.

    make demo && python scripts/report_picture.py [runs/demo/report.html] [docs/images/report.png]

It needs playwright (in evenhand[dev]) and chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1000, 1045
LEFT_OUT = """
.facts, .origin, #findings > p, #tests, #numbers, .findings li:nth-child(n + 4) { display: none }
main { padding-top: 20px }
"""
"""Findings and charts shall fit into one picture; what is shown is as the report has it."""


def main(report: str = "runs/demo/report.html", out: str = "docs/images/report.png") -> None:
    browser = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT}, bypass_csp=True)
        page.goto(Path(report).resolve().as_uri())
        page.add_style_tag(content=LEFT_OUT)
        page.screenshot(path=out)
        opened.close()
    print(f"{out}: {Path(out).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
