"""What README.md and CONTRIBUTING.md show to a newcomer runs as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.write import write_table
from evenhand.testing import check_sampler
from run_cli import evenhand, one_thread, small_log

ROOT = Path(__file__).parents[1]


def block(page: str, name: str) -> str:
    """The code that follows the mark `<!-- run: NAME -->`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- run: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found, f"{page} has no code marked {name}"
    return found.group(1)


def commands(name: str) -> list[list[str]]:
    words = [shlex.split(line, comments=True) for line in block("README.md", name).splitlines()]
    assert all(command[0] == "evenhand" for command in words)
    return [command[1:] for command in words]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = np.random.default_rng(0)
    rows = [f"c{u},{i:05},1" for u in range(60) for i in np.flatnonzero(generator.random(50) < 0.25)]
    (tmp_path / "purchases.csv").write_text("\n".join(["customer,sku,qty", *rows, ",00001,1", f"{rows[0][:-1]}-1"]))
    items = [f"{i:05},Café {i},{i % 3}" for i in range(50)]
    (tmp_path / "items.csv").write_text("\n".join(["sku,name,stock", *items]), encoding="latin-1")
    (tmp_path / "newcomers.csv").write_text("customer,sku\nnew,00001\nnew,00003\nodd,xyz\n")
    (tmp_path / "newer.csv").write_text("customer,sku,qty\nc1,00050,1\nnew,00001,2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_two_commands(shop: Path) -> None:
    train, recommend = commands("first")
    assert evenhand(*train, "--method", "als", "-k", "5").code == 0  # the recipe takes the time that it is given
    assert evenhand(*recommend).code == 0
    assert (shop / "lists.parquet").is_file()


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs/images/report.png").stat().st_size < 200_000


def test_the_first_hour(shop: Path) -> None:
    pytest.importorskip("duckdb")
    for command in commands("shop"):
        # The recipe takes the time that it is given; one method shows as well that the commands fit together.
        quick = ["--method", "als", "-k", "5"] if command[0] == "train" else []
        ended = evenhand(*command, *quick)
        assert ended.code == 0, (command, ended.err)
    assert eh.load("model").known.n_users == 60
    assert (shop / "lists.parquet").is_file()
    assert eh.load("model-2").known.n_users == 61


def test_an_audit_of_lists_from_elsewhere(shop: Path) -> None:
    split, audit = commands("audit")
    assert evenhand(*split).code == 0
    train = eh.Interactions.read("parts/train.csv")
    with one_thread():
        write_table(eh.Popular().fit_pairs(train).recommend(k=20), shop / "lists.csv")
    ended = evenhand(*audit)
    assert ended.code == 0, ended.err
    assert (shop / "report.html").is_file()


def test_the_python_of_the_first_screen(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with one_thread():
        exec(block("README.md", "python"), {})
    assert 0 < float(capsys.readouterr().out) < 1
    assert (shop / "model" / "config.json").is_file()


def test_the_sampler_of_contributing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("cold")
    monkeypatch.setitem(sys.modules, "cold", module)
    exec(block("CONTRIBUTING.md", "sampler"), module.__dict__)
    sampler = module.ColdSampler(exponent=0.7)
    with one_thread():
        check_sampler(sampler)
        split = small_log().split()
        settings = eh.Settings(epochs=2)
        found = eh.compare(split, ["rns", sampler], seeds=2, settings=settings, device="cpu", progress=False)
    assert [row.method for row in found.rows if row.k == 10] == ["rns", "ColdSampler"]


def test_the_pages_that_are_linked_exist() -> None:
    for page in ("README.md", "CONTRIBUTING.md", "docs/first-hour.md", "docs/models.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), (page, target)
