"""The report of an audit as a file: whole, small, and safe against hostile names."""

from __future__ import annotations

import base64
import doctest
import hashlib
import importlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evenhand.audit.result import Audit, Change, Exposure, Finding, SliceRow, SystemRow
from evenhand.metrics.statistics import Estimate
from evenhand.report import write_report
from evenhand.report.audit_charts import items_that_fill, slice_figures
from evenhand.report.audit_page import audit_page, best_value
from evenhand.report.render import clean, described, main_groups, percent
from evenhand.report.training_charts import TrainingStory, curves_of, training_figures
from evenhand.utils.errors import InputError
from run_cli import TINY, evenhand, small_log, write_log
from sample_audit import SYSTEMS, bare_audit, sample_audit, sample_story

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp; \u2028\u202e\x00\ud800'
MEGABYTE = 1_000_000


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and text."""

    VOID = ("meta", "br", "img", "path", "rect", "line", "circle")

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def text_in(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    @property
    def text(self) -> str:
        return " ".join(text for inside, text in self.texts if inside not in ("script", "style"))

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


def hostile_audit() -> Audit:
    names = (f"a{HOSTILE}", f"b{HOSTILE}")
    audit = sample_audit(names, title=HOSTILE)
    example = replace(audit.examples[0], user=HOSTILE, why=HOSTILE)
    rows = tuple(replace(row, metrics={**row.metrics, HOSTILE: Estimate(0.1)}) for row in audit.rows)
    return replace(
        audit,
        notes=(HOSTILE,),
        findings=(Finding(HOSTILE, True),),
        rows=rows,
        slices=tuple(replace(s, part=f"{s.part}{HOSTILE}", by=HOSTILE) for s in audit.slices),
        data={**audit.data, "hot_rule": HOSTILE},
        examples=(example,),
    )


def test_hostile_names_titles_and_ids_stay_text(tmp_path: Path) -> None:
    audit = hostile_audit()
    write_report(audit, tmp_path / "r.html", training=sample_story(audit.systems))
    document = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "\ufffd" in document
    seen = Page(document)
    tags = [tag for tag, _ in seen.elements]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "link"} & set(tags)
    for tag, attributes in seen.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
    # In names, title, user, why, note, finding and metric the words are there to be read, as they were given.
    assert seen.text.count('</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp;') > 20


def test_nothing_is_fetched_and_only_its_own_style_and_script_are_allowed(document: str) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", document.replace("// ", ""))
    seen = Page(document)
    assert not [a for _, a in seen.elements if {"src", "href", "xlink:href", "action", "srcset"} & a.keys()]
    policy = next(a["content"] for _, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (inside,) = seen.text_in(tag)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_ids_in_the_page_are_unique(whole: Page) -> None:
    assert len(whole.ids) == len(set(whole.ids)) > 15


def test_many_systems_long_names_and_long_training_stay_under_two_megabytes(tmp_path: Path) -> None:
    systems = tuple(f"system {n} " + "long " * 100 for n in range(9))
    audit = sample_audit(systems, title="t" * 100_000)
    audit = replace(audit, contrasts=audit.contrasts * 500, examples=audit.examples * 40)
    history = [
        {"epoch": e, **{q: [1 / e, 1.1 / e, 1.2 / e] for q in ("loss", "hot_share", "false_share", "alpha")}}
        for e in range(1, 201)
    ]
    story = replace(sample_story(systems), curves=tuple(c for s in systems for c in curves_of(s, history)))
    write_report(audit, tmp_path / "r.html", training=story)
    assert (tmp_path / "r.html").stat().st_size < 2 * MEGABYTE


def test_every_part_of_an_audit_is_shown(whole: Page) -> None:
    audit, seen = sample_audit(), whole
    for section in ("findings", "numbers", "charts", "slices", "training", "examples", "notes", "words"):
        assert section in seen.ids
    for figure in (
        "exposure",
        "confusion",
        "tradeoff",
        "lorenz",
        "slice-0",
        "training-ndcg-10",
        "training-loss",
    ):
        assert f"figure-{figure}" in seen.ids
    for text in (
        *(f.sentence for f in audit.findings),
        *audit.notes,
        "A Quiet Harbour (1994)",
        "niche taste",
    ):
        assert text in seen.text.replace("\u00a0", " ")
    assert "exceeds the uncertainty" in seen.text
    assert "within the uncertainty" in seen.text
    assert "epochs were chosen on the test part itself" in seen.text  # the paper's protocol says so


def test_charts_have_a_text_in_their_place_and_a_table_of_their_numbers(untrained: Page) -> None:
    seen = untrained
    charts = [a for tag, a in seen.elements if tag == "svg" and a.get("class") == "chart"]
    assert len(charts) == 6  # the confusion has two
    assert all(a.get("role") == "img" and len(a.get("aria-label") or "") > 40 for a in charts)
    assert [tag for tag, _ in seen.elements].count("figcaption") == 5
    # 26 of 94 hundred slots of `ease` are hot hits: by hand 2600 / (2600 + 210 + 5500 + 1090) = 27.7 %.
    shown = next(a["aria-label"] for a in charts if "recommended slots" in (a["aria-label"] or ""))
    assert shown is not None
    assert "ease: 28\u00a0% hot, wanted and shown" in shown


def test_what_is_missing_is_left_out() -> None:
    seen = Page(audit_page(bare_audit()))
    for section in ("findings", "slices", "training", "examples", "notes", "changes"):
        assert section not in seen.ids
    assert {"numbers", "charts", "figure-exposure", "figure-lorenz"} <= set(seen.ids)
    assert not {"figure-confusion", "figure-tradeoff"} & set(seen.ids)
    assert "★" not in "".join(seen.text_in("span"))  # one system is not the best of anything


def test_an_audit_with_nothing_in_it_still_makes_a_page() -> None:
    empty = replace(bare_audit(), rows=(), exposure=(), demand={}, data={})
    seen = Page(audit_page(empty))
    assert seen.text_in("h1") == [] or "only" in seen.text
    assert "numbers" not in seen.ids


def test_changes_against_an_earlier_audit_are_reported() -> None:
    change = Change("ease", 10, "ohr", Estimate(0.61), Estimate(0.66), beyond_uncertainty=True, worse=True)
    seen = Page(audit_page(replace(sample_audit(), changes=(change,))))
    assert "changes" in seen.ids
    assert "worse, beyond the uncertainty" in seen.text


def test_the_best_value_is_marked_by_direction_and_not_without_one() -> None:
    rows = [
        SystemRow("a", 10, {"ndcg": Estimate(0.3), "ohr": Estimate(0.6), "arp": Estimate(9.0)}),
        SystemRow("b", 10, {"ndcg": Estimate(0.2), "ohr": Estimate(0.5), "arp": Estimate(7.0)}),
        SystemRow("c", 10, {"ndcg": Estimate(float("nan")), "ohr": Estimate(0.5), "arp": Estimate(7.0)}),
    ]
    assert best_value(rows, "ndcg") == 0.3
    assert best_value(rows, "ohr") == 0.5
    assert best_value(rows, "arp") is None
    assert best_value(rows[:1], "ndcg") is None
    assert best_value(rows, "unheard_of") is None


def test_silence_is_not_the_best() -> None:
    """A system that shows no cold item has an OCR of 0, and deserves no star for it."""
    shown = {"ocr": Estimate(0.4, 0.3, 0.5), "ocr_defined": Estimate(0.6)}
    rows = (
        SystemRow("a", 10, {"ocr": Estimate(0.0, 0.0, 0.0), "ocr_defined": Estimate(float("nan"))}),
        SystemRow("b", 10, shown),
        SystemRow("c", 10, shown | {"ocr": Estimate(0.5, 0.4, 0.6)}),
    )
    assert best_value(rows, "ocr") == 0.4
    page = audit_page(replace(sample_audit(("a", "b", "c")), rows=rows))
    table = page[page.index('id="numbers"') : page.index("</table>")]
    silent, best, other = table.split('<tr><th scope="row">')[1:]
    assert "0.000<small>none shown</small>" in silent
    assert ["★" in row for row in (silent, best, other)] == [False, True, False]


def _sliced(values: dict[str, tuple[Estimate, ...]]) -> str:
    """The title of a chart over these parts; the first value of each is the first system's."""
    audit = sample_audit(("a", "b"))
    slices = tuple(
        SliceRow("taste", "users", part, 100, name, 10, {"ndcg": estimate})
        for part, estimates in values.items()
        for name, estimate in zip(audit.systems, estimates, strict=True)
    )
    (figure,) = slice_figures(replace(audit, slices=slices))
    return figure.title


def test_the_title_of_slices_is_true_of_the_first_system() -> None:
    def near(value: float, by: float = 0.02) -> Estimate:
        return Estimate(value, value - by, value + by)

    low, high, point = near(0.1), near(0.3), Estimate(0.0, 0.0, 0.0)
    assert (
        _sliced({"x": (low, high), "y": (high, near(0.9)), "z": (near(0.2), point)})
        == "NDCG@10 of a is highest in “y”, lowest in “x”"
    )
    assert (
        _sliced({"x": (high, low), "y": (point, low), "z": (point, low)})
        == "NDCG@10 of a is highest in “x”, lowest in 2 of 3 parts"
    )
    assert (
        _sliced({"x": (near(0.30), low), "y": (near(0.32), high)})
        == "NDCG@10 of a differs between these parts by no more than chance"
    )


def test_of_many_parts_the_outermost_must_lie_further_apart() -> None:
    two = {"x": (Estimate(0.30, 0.28, 0.32),) * 2, "y": (Estimate(0.33, 0.31, 0.35),) * 2}
    many = two | {f"p{n}": (Estimate(0.315, 0.295, 0.335),) * 2 for n in range(6)}
    assert "highest in “y”" in _sliced(two)
    assert "no more than chance" in _sliced(many)


def test_how_much_more_a_user_had_is_the_whole_rest() -> None:
    audit = sample_audit()
    example = replace(audit.examples[0], n_history=536)
    seen = Page(audit_page(replace(audit, examples=(example,))))
    assert "and 524 more" in seen.text


def test_the_first_screen_says_what_its_words_mean(untrained: Page) -> None:
    assert "is what the user has in the test data" in untrained.text
    assert "is what the user has in the test data" not in Page(audit_page(bare_audit())).text


def test_under_the_papers_protocol_it_says_whose_numbers_are_shown(whole: Page) -> None:
    story = sample_story()
    assert story.protocol == "paper"
    assert "of each method’s saved model, from its best epoch by precision" in whole.text
    assert "taken at its own best test epoch" in whole.text
    honest = Page(audit_page(bare_audit(), replace(story, protocol="honest", curves=())))
    assert "best epoch by precision" not in honest.text
    assert "own best test epoch" not in honest.text


def test_unknown_metrics_are_called_by_their_own_name(whole: Page) -> None:
    assert described("house_metric").title == "house metric"
    assert described("house_metric").higher_is_better is None
    assert main_groups(["x", "y"]) == [("Metrics", ["x", "y"])]
    assert "house metric" in whole.text


@pytest.mark.parametrize("module", ["report.render", "report.training_charts"])
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"evenhand.{module}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_words_and_numbers() -> None:
    assert clean(" a\n\tb\u00a0% ") == "a b\u00a0%"
    assert clean("\ud800\x07") == "\ufffd\ufffd"
    assert percent(0.0995) == "10\u00a0%"
    assert percent(0.0994) == "9.9\u00a0%"


def test_the_share_of_items_that_fill_half_the_slots() -> None:
    # Four items with 0, 1, 1 and 2 of four slots: the last item alone fills half of them.
    curve = Exposure("a", 1, (), ((0.0, 0.0), (0.25, 0.0), (0.5, 0.25), (0.75, 0.5), (1.0, 1.0)))
    assert items_that_fill(curve, 0.5) == pytest.approx(0.25)
    assert items_that_fill(curve, 0.75) == pytest.approx(0.5)
    assert items_that_fill(curve, 0.875) == pytest.approx(0.625)


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    target.write_text("the old one")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", refuse)
        with pytest.raises(InputError, match=r"cannot write .*r\.html: Permission denied"):
            write_report(bare_audit(), target)
    assert target.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(InputError, match="No such file"):
        write_report(bare_audit(), tmp_path / "nowhere" / "r.html")


def test_curves_hold_mean_and_range_over_seeds() -> None:
    history = [
        {"epoch": 1, "seconds": 3.0, "loss": [1.0, 3.0], "metrics": {"ndcg@10": [0.1, None]}},
        {"epoch": 2, "seconds": 4.0, "loss": [2.0, 2.0], "metrics": {"ndcg@10": [float("nan"), None]}},
    ]
    loss, ndcg = curves_of("rns", history)
    assert (loss.quantity, loss.mean, loss.low, loss.high) == ("loss", (2.0, 2.0), (1.0, 2.0), (3.0, 2.0))
    assert (ndcg.quantity, ndcg.epochs, ndcg.mean) == ("ndcg@10", (1,), (0.1,))


def test_training_charts_speak_of_one_k_and_skip_what_never_moves() -> None:
    def record(epoch: int) -> dict[str, object]:
        evaluated = {f"{m}@{k}": [0.1 * epoch] for m in ("ndcg", "ohr") for k in (5, 10)}
        return {"epoch": epoch, "alpha": [0.75], "moving": [0.1 * epoch], "metrics": evaluated}

    story = replace(sample_story(), curves=tuple(curves_of("auc-ns", [record(1), record(2)])))
    keys = [figure.key for figure in training_figures(story, SYSTEMS)]
    assert keys == ["training-ndcg-10", "training-ohr-10", "training-moving"]


@pytest.fixture(scope="module")
def document() -> str:
    """The page of the sample audit with its training; drawn once."""
    return audit_page(sample_audit(), sample_story())


@pytest.fixture(scope="module")
def whole(document: str) -> Page:
    return Page(document)


@pytest.fixture(scope="module")
def untrained() -> Page:
    """The page of an audit of lists alone."""
    return Page(audit_page(sample_audit()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A small comparison with its folder, and what it printed."""
    place = tmp_path_factory.mktemp("run")
    log = write_log(small_log(), place / "log.csv")
    ended = evenhand("compare", log, "--methods", "rns,popular", "--k", "5,10", "--out", place / "run", *TINY)
    assert ended.code == 0, ended.err
    return place / "run", ended.out


def test_compare_writes_a_report_and_says_where(run: tuple[Path, str]) -> None:
    folder, printed = run
    assert f"Open the report in a browser: {folder / 'report.html'}" in printed
    seen = Page((folder / "report.html").read_text(encoding="utf-8"))
    sentence = next(line for line in printed.splitlines() if line.startswith("Best on "))
    first = next(text for _, text in seen.texts if text.startswith("Best on "))
    assert first.replace("\u00a0", " ") == sentence
    assert {"training", "figure-training-ndcg-10", "figure-training-hot_share", "figure-exposure"} <= set(seen.ids)
    assert "the test part was looked at once" in seen.text
    assert str(folder.parent) not in (folder / "report.html").read_text(encoding="utf-8")
    assert "evenhand compare log.csv --methods rns,popular --k 5,10 --out run" in seen.text


def test_the_story_of_a_comparison_tells_protocol_and_spread() -> None:
    import evenhand as eh

    split = small_log().split(test=0.2, validation=0.0, seed=0)
    settings = eh.Settings(epochs=2, batch=256)
    result = eh.compare(split, ["rns", "popular"], eh.MF(dim=4), 2, settings, protocol="paper", k=5)
    story = TrainingStory.of(result)
    assert (story.protocol, story.judged_on, story.seeds) == ("paper", "test", 2)
    assert {curve.name for curve in story.curves} == {"rns"}
    assert {(s.name, s.k) for s in story.spreads} == {("rns", 5), ("popular", 5)}
    assert next(curve for curve in story.curves if curve.quantity == "loss").epochs == (1, 2)
    assert set(story.chosen) == {"rns"}


def test_a_report_that_fails_costs_the_report_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a chart would not draw")

    monkeypatch.setattr("evenhand.report.write_comparison_report", fail)
    log = write_log(small_log(), tmp_path / "log.csv")
    ended = evenhand("compare", log, "--methods", "popular", "--out", tmp_path / "run", *TINY)
    assert ended.code == 0
    assert "note: no report was written: ValueError: a chart would not draw" in ended.err
    assert "report.html" not in ended.out
    assert (tmp_path / "run" / "results.json").is_file()


def test_a_curve_is_the_mean_of_all_seeds_also_once_some_have_stopped() -> None:
    """Without those that have stopped, a mean would rise or fall to what is left."""
    history = [
        {"epoch": 1, "loss": [0.5, 0.7], "metrics": {"ndcg@10": [0.2, 0.4]}},
        {"epoch": 2, "loss": [None, 0.5], "metrics": {"ndcg@10": [None, 0.6]}},
    ]
    loss, ndcg = curves_of("rns", history)
    assert loss.mean == pytest.approx((0.6, 0.5))
    assert ndcg.mean == pytest.approx((0.3, 0.4))
    assert (ndcg.low[1], ndcg.high[1]) == (0.2, 0.6)
