"""`reproduce`: rows beside the paper's, grids that go on where they were left, and refusals in one sentence.

All data are generated, in the layouts of the data sets whose names they bear.
"""

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.baselines import EASE
from evenhand.data.datasets.known import YAHOO_TEST, YAHOO_TRAIN
from evenhand.data.splits import Split, held_out_share
from evenhand.experiments import results as results_module
from evenhand.experiments.results import COMPARISONS, MEASUREMENTS, RUNS, Results, Run
from evenhand.methods import METHODS
from evenhand.paper import reproduce as run_module
from evenhand.paper.claims import differences
from evenhand.paper.experiment import (
    DEFAULT_METHODS,
    Experiment,
    Recipe,
    load_published_split,
    published_row,
    recipe,
    swept,
    swept_values,
)
from evenhand.paper.published import cell
from evenhand.paper.reproduce import HELD_OUT, Finished, epochs_until, fit_batch, forget, reproduce
from evenhand.paper.tables import Pair, grids, markdown
from evenhand.training.run import train
from evenhand.utils.errors import InputError, RunError, StoppedError
from run_cli import Ended, evenhand

FAST = ("--epochs", 2, "--seeds", 2, "--device", "cpu")


def triples(users: int = 40, items: int = 50) -> np.ndarray:
    """[n, 3] user, item, rating from 1 on, the first items the most popular."""
    generator = np.random.default_rng(0)
    chance = np.maximum(0.8 / np.sqrt(1 + np.arange(items)), 0.2)
    pairs = np.argwhere(generator.random((users, items)) < chance) + 1
    return np.column_stack([pairs, generator.integers(1, 6, len(pairs))])


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ML-100K and a tiny Yahoo!-R3."""
    root = tmp_path_factory.mktemp("data")
    rows = triples()
    (root / "ml-100k").mkdir()
    np.savetxt(root / "ml-100k" / "u.data", np.column_stack([rows, rows[:, 0]]), "%d", "\t")
    (root / "yahoo-r3").mkdir()
    shown = np.arange(len(rows)) % 4 == 0
    for name, part in ((YAHOO_TRAIN, rows[~shown]), (YAHOO_TEST, rows[shown])):
        np.savetxt(root / "yahoo-r3" / name, part, "%d", "\t")
    return root


@pytest.fixture(scope="session")
def split(data_dir: Path) -> Split:
    return load_published_split("ml-100k", str(data_dir), "paper")


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "nothing-here"))
    monkeypatch.setenv("EVENHAND_GROUPLENS_URL", "http://127.0.0.1:9")


def overall(folder: Path, data_dir: Path, *more: object) -> Ended:
    return evenhand("reproduce", "overall", *FAST, "--data-dir", data_dir, "--out", folder, *more)


def document(folder: Path, name: str = "overall-ml-100k-mf-paper-paper") -> Any:
    return Results(folder).document(name)


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2, ended.err
    assert ended.err.count("\n") == 1
    for word in words:
        assert word in ended.err


def test_every_row_has_ours_the_papers_and_what_made_it(tmp_path: Path, data_dir: Path) -> None:
    ended = overall(tmp_path, data_dir, "--methods", "rns,ease,dns:candidates=2")
    assert ended.code == 0, ended.err
    assert "3 of 3" in ended.err
    found = document(tmp_path)
    assert list(found["entries"]) == ["rns", "ease", "dns:candidates=2"]
    rns, ease, dns = found["entries"].values()
    assert (rns["training"]["batch"], rns["training"]["lr"], rns["encoder"]["dim"]) == (128, 0.1, 32)
    assert rns["training"]["milestones"] == [20, 60, 80]
    assert dns["sampler"] == {"kind": "DynamicSampler", "candidates": 2, "top": 1}
    assert len(rns["metrics"]["ohr@20"]["values"]) == 2
    assert ease["metrics"]["precision@5"]["std"] is None
    assert ease["metrics"]["mse"]["mean"] is None
    assert rns["command"].startswith("evenhand reproduce overall --dataset ml-100k --encoder mf --methods rns")
    assert "data-dir" not in rns["command"]
    mean, std = (rns["metrics"]["precision@5"][name] for name in ("mean", "std"))
    away = f"{abs(mean - 0.3676) / std:.1f}"
    page = (tmp_path / "overall-ml-100k-mf-paper-paper.md").read_text()
    first = page.split("top 10")[0]
    assert ".3676" in first
    assert f"−{away}" in first or f"+{away}" in first
    assert f"{mean:.4f}"[1:] in first
    assert ".4040" not in first
    assert "lr 0.1, a tenth after 20,60,80" in page


def test_a_grid_killed_between_methods_goes_on(tmp_path: Path, data_dir: Path) -> None:
    overall(tmp_path, data_dir, "--methods", "rns")
    before = document(tmp_path)["entries"]["rns"]
    ended = overall(tmp_path, data_dir, "--methods", "rns,pns")
    assert "1 of 2 rows are there already" in ended.err
    after = document(tmp_path)["entries"]
    assert after["rns"] == before
    assert list(after) == ["rns", "pns"]


def test_a_training_stopped_within_goes_on_to_the_same_numbers(tmp_path: Path, split: Split) -> None:
    experiment = Experiment("overall", seeds=2, epochs=6, ks=(5, 10, 20))
    whole = reproduce(experiment, split, ["rns"], tmp_path / "whole", device="cpu")
    lines: list[str] = []
    stopped = reproduce(experiment, split, ["rns"], tmp_path / "parts", device="cpu", minutes=1e-9, tell=lines.append)
    assert stopped.missing == ("rns",)
    seen: list[int] = []

    def stop_at_three(label: str) -> Any:
        def on_epoch(epoch: int, most: int, news: object) -> None:
            import signal

            seen.append(epoch)
            if epoch == 3:
                signal.raise_signal(signal.SIGINT)

        return on_epoch

    with pytest.raises(StoppedError, match="stopped in rns; all is saved: the same command goes on"):
        reproduce(experiment, split, ["rns"], tmp_path / "parts", device="cpu", bars=stop_at_three)
    assert seen == [1, 2, 3]
    ended = reproduce(experiment, split, ["rns"], tmp_path / "parts", device="cpu", bars=stop_at_three)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert ended.missing == ()
    assert ended.document["entries"]["rns"]["metrics"] == whole.document["entries"]["rns"]["metrics"]


def test_the_time_limit_stops_a_training_in_the_middle(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock says that the time is up once two epochs are done."""
    epochs: list[int] = []
    monkeypatch.setattr(
        run_module._Clock, "is_over", property(lambda self: self.limit is not None and len(epochs) >= 2)
    )
    experiment = Experiment("overall", seeds=1, epochs=5)
    bars: Any = lambda label: lambda epoch, most, news: epochs.append(epoch)  # noqa: E731
    outcome = reproduce(experiment, split, ["rns", "pns"], tmp_path, device="cpu", minutes=1, bars=bars)
    assert epochs == [1, 2]
    assert outcome.missing == ("rns", "pns")
    assert outcome.document["entries"] == {}
    outcome = reproduce(experiment, split, ["rns"], tmp_path, device="cpu", bars=bars)
    assert epochs == [1, 2, 3, 4, 5]


def test_a_method_that_fails_does_not_take_the_others_along(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(batch: Sequence[Recipe], *rest: Any) -> list[Finished]:
        if batch[0].label == "rns":
            raise RunError("the loss became nan in epoch 1; lower --lr.")
        return fit_batch(batch, *rest)

    monkeypatch.setattr(run_module, "fit_batch", fit)
    ended = overall(tmp_path, data_dir, "--methods", "rns,ease")
    assert ended.code == 1
    assert "rns: the loss became nan" in ended.err
    assert list(document(tmp_path)["entries"]) == ["ease"]


def test_a_sweep_is_one_training_with_its_own_value_for_each_row(tmp_path: Path, split: Split) -> None:
    """Values side by side give what each gives alone: seeds are the same, only the sampler differs."""
    experiment = Experiment("alpha", seeds=2, epochs=2)
    rows = [swept(experiment, value) for value in ("0.5", "1")]
    together = fit_batch(rows, experiment, split, tmp_path, "cpu")
    assert [run.method for run, _ in together] == ["0.5", "1"]
    assert [run.details["sampler"]["alpha"] for run, _ in together] == [0.5, 1.0]
    alone = [fit_batch([one], experiment, split, tmp_path, "cpu")[0] for one in rows]
    for one, other in zip(together, alone, strict=True):
        assert one[0].measured == other[0].measured
    assert together[0][0].measured != together[1][0].measured
    for batch in (rows, rows[:1], rows[1:]):
        forget(batch, tmp_path, "cpu")
    assert list(tmp_path.iterdir()) == []


def test_beta_has_the_negatives_beside_the_papers(tmp_path: Path, data_dir: Path) -> None:
    options = (*FAST, "--data-dir", data_dir, "--out", tmp_path, "--values", ".1,0.0100")
    ended = evenhand("reproduce", "beta", *options)
    assert ended.code == 0, ended.err
    found = document(tmp_path, "beta-ml-100k-mf-paper-paper")["entries"]
    assert list(found) == ["0.01", "0.1"]
    assert [one["sampler"]["beta"] for one in found.values()] == [0.01, 0.1]
    assert "hot_share" in ended.out
    assert ".2709" in ended.out
    assert ".3604" in ended.out
    assert 0 < found["0.01"]["metrics"]["hot_share_first_epoch"]["mean"] < 1


def test_errors_share_the_runs_of_overall(tmp_path: Path, data_dir: Path) -> None:
    overall(tmp_path, data_dir, "--methods", "rns,als")
    options = (*FAST, "--data-dir", data_dir, "--out", tmp_path, "--methods", "rns,als")
    ended = evenhand("reproduce", "errors", *options)
    assert "2 of 2 rows are there already" in ended.err
    assert ".2361" in ended.out
    entry = document(tmp_path)["entries"]["rns"]["metrics"]
    assert f"{entry['mse']['mean']:.4f}"[1:] in ended.out
    # The best FPR is that of the best-precision epoch, and the two sum to 1 by definition.
    assert entry["fpr@5"]["mean"] == pytest.approx(1 - entry["precision@5"]["mean"], abs=2e-6)


def test_yahoo_from_its_publishers_files(tmp_path: Path, data_dir: Path) -> None:
    ended = overall(tmp_path, data_dir, "--dataset", "yahoo-r3", "--methods", "rns", "--k", "5")
    assert ended.code == 0, ended.err
    found = document(tmp_path, "overall-yahoo-r3-mf-paper-paper")
    assert "test 20 %" in found["identity"]["split"]
    printed = cell("performance", "yahoo-r3", "mf", "rns", 5, metric="precision")
    assert f"{printed.value:.4f}"[1:] in ended.out
    refused(overall(tmp_path, data_dir, "--dataset", "yahoo-r3", "--settings", "released"), "yahoo-r3")


def test_the_authors_split_is_used_where_it_lies(tmp_path: Path) -> None:
    rows = triples()
    for name, part in (("paper_train.csv", rows[::2]), ("paper_test.csv", rows[1::2])):
        np.savetxt(tmp_path / name, part, "%d", ",", header="user,item,rating", comments="")
    split = load_published_split("ml-100k", str(tmp_path), "paper")
    assert split.description.startswith("the authors' split")
    assert (len(split.train), len(split.test)) == (len(rows[::2]), len(rows[1::2]))
    assert split.validation is None
    honest = load_published_split("ml-100k", str(tmp_path), "honest").validation
    assert honest is not None
    assert len(honest) == round(0.1 * len(rows[::2]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dataset", "ml-10k"), ["'ml-10k'", "'ml-1"]),
        (("--encoder", "lightgcm"), ["'lightgcn'"]),
        (("--methods", "auc-n"), ["'auc-ns'"]),
        (("--k", "5,7"), ["'7'", "nearest is 5"]),
        (("--settings", "papers"), ["'paper'"]),
        (("--protocol", "fair"), ["fair", "honest, paper"]),
        (("--settings", "tuned", "--methods", "dns"), ["nothing was tuned for 'dns'", "macr"]),
        (("--seeds", "0"), ["--seeds"]),
        (("--time-limit", "0"), ["--time-limit"]),
        (("--data-dir", "/no/such/folder"), ["/no/such/folder does not exist"]),
    ],
)
def test_what_is_not_in_the_paper_is_refused_in_a_sentence(
    tmp_path: Path, data_dir: Path, options: tuple[str, ...], words: list[str]
) -> None:
    out = tmp_path / "results"
    refused(overall(out, data_dir, *options), *words)
    assert not out.exists()


def test_sweeps_were_published_for_one_data_set_and_some_values(tmp_path: Path, data_dir: Path) -> None:
    where = ("--out", tmp_path / "results", "--data-dir", data_dir)
    refused(evenhand("reproduce", "alpha", "--dataset", "ml-1m", *where), "ml-1m", "ml-100k")
    refused(evenhand("reproduce", "gamma", "--encoder", "lightgcn", *where), "lightgcn", "mf")
    refused(evenhand("reproduce", "alpha", "--values", "0.76", *where), "'0.76'", "nearest is 0.75")
    refused(evenhand("reproduce", "alpha", "--values", "much", *where), "'much'")
    refused(evenhand("reproduce", "alpha", "--settings", "tuned", *where), "tuned")


def test_a_data_set_that_is_not_there_is_reported(tmp_path: Path) -> None:
    options = ("--dataset", "yahoo-r3", "--out", tmp_path / "results", "--data-dir", tmp_path)
    refused(evenhand("reproduce", "overall", *options), "yahoo-r3 was not found", YAHOO_TRAIN)


def test_other_versions_settings_and_files_are_not_mixed(tmp_path: Path, data_dir: Path) -> None:
    assert overall(tmp_path, data_dir, "--methods", "ease").code == 0
    file = tmp_path / RUNS
    before = file.read_bytes()
    refused(overall(tmp_path, data_dir, "--methods", "rns", "--epochs", "3"), "epochs 2, now 3")
    refused(overall(tmp_path, data_dir, "--methods", "rns", "--k", "5"), "ks [5, 10, 20], now [5]")
    refused(overall(tmp_path, data_dir, "--methods", "rns", "--seeds", "3"), "seeds 2, now 3")
    assert file.read_bytes() == before

    def changed(**columns: Any) -> None:
        file.write_bytes(before)
        results = Results(tmp_path)
        ((name, run),) = results.runs.items()
        results.runs[name] = replace(run, **columns)
        results.write()

    details = Results(tmp_path).of("overall-ml-100k-mf-paper-paper")["ease"].details
    changed(details={**details, "rival": {"l2": 1}})
    refused(overall(tmp_path, data_dir, "--methods", "ease"), "'ease' with another rival l2")

    changed(versions={"evenhand": "0.0.1"})
    after = file.read_bytes()
    refused(overall(tmp_path, data_dir, "--methods", "rns"), "evenhand 0.0.1", "another --out")
    refused(overall(tmp_path, data_dir, "--settings", "released", "--methods", "rns"), "evenhand 0.0.1")
    assert file.read_bytes() == after

    pq.write_table(pa.table({"run": ["x"]}), tmp_path / "other.parquet")
    for content, word in ((b"{", "damaged"), ((tmp_path / "other.parquet").read_bytes(), "is not a table of")):
        file.write_bytes(content)
        refused(overall(tmp_path, data_dir, "--methods", "rns"), word)
        assert file.read_bytes() == content


def test_a_process_killed_between_two_tables_loses_nothing_and_leaves_no_half(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that was being written is made again; what was finished before stays as it was."""
    experiment = Experiment("overall", seeds=1, epochs=1, ks=(5,))
    reproduce(experiment, split, ["ease"], tmp_path, device="cpu")
    before = Results(tmp_path).runs
    write_atomically = results_module.write_atomically
    for table in (MEASUREMENTS, COMPARISONS, RUNS):

        def dying(target: Path, content: bytes, at: str = table) -> None:
            if target.name == at:
                raise KeyboardInterrupt
            write_atomically(target, content)

        with monkeypatch.context() as patch:
            patch.setattr(results_module, "write_atomically", dying)
            with pytest.raises(KeyboardInterrupt):
                reproduce(experiment, split, ["popular"], tmp_path, device="cpu")
        found = Results(tmp_path).runs
        assert list(found) == list(before)
        assert all(found[name].measured == run.measured for name, run in before.items())
    done = reproduce(experiment, split, ["popular"], tmp_path, device="cpu")
    assert list(done.document["entries"]) == ["ease", "popular"]


def test_other_data_are_not_mixed(tmp_path: Path, data_dir: Path) -> None:
    assert overall(tmp_path / "out", data_dir, "--methods", "ease").code == 0
    (tmp_path / "other").mkdir()
    rows = triples(30)
    np.savetxt(tmp_path / "other" / "u.data", np.column_stack([rows, rows[:, 0]]), "%d", "\t")
    refused(overall(tmp_path / "out", tmp_path / "other", "--methods", "ease"), "other data")


def test_a_file_in_the_place_of_the_folder(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(overall(tmp_path / "file", data_dir), "is a file")


@pytest.mark.parametrize(
    ("asked", "which", "batch", "lr", "decay"),
    [
        ("rns", "paper", 128, 0.1, 1e-4),
        ("auc-ns", "paper", 128, 0.1, 1e-4),
        ("bc-loss", "paper", 1024, 0.01, 1e-4),
        ("ips-cn:smoothing=0.5", "released", 1024, 0.001, 1e-5),
        ("rns", "tuned", 1024, 0.003, 1e-5),
    ],
)
def test_the_numbers_of_a_row(asked: str, which: Any, batch: int, lr: float, decay: float) -> None:
    found = recipe(Experiment("overall", settings=which), asked)
    settings = found.method.settings
    assert (settings.batch, settings.lr, settings.weight_decay) == (batch, lr, decay)
    assert settings.drop_last


def test_own_parameters_come_from_the_paper_the_code_or_the_text() -> None:
    def sampler(which: Any, asked: str = "auc-ns", encoder: str = "mf") -> Any:
        found = recipe(Experiment("overall", encoder=encoder, settings=which), asked).method
        return found.sampler

    assert (sampler("paper").alpha, sampler("paper").beta) == (0.75, 0.01)
    assert (sampler("released").alpha, sampler("released").beta) == (0.6, 0.025)
    assert sampler("paper", "auc-ns:alpha=0.9").alpha == 0.9
    cause = recipe(Experiment("overall", encoder="lightgcn"), "cause")
    assert cause.method.objective.weight == 0.05
    assert cause.method.settings.batch == 128, "nothing was tuned for LightGCN, so the paper's loop"
    assert recipe(Experiment("overall", "ml-1m"), "ease").method == EASE(l2=980)
    assert recipe(Experiment("overall", "ml-1m"), "ease:l2=5").method == EASE(l2=5)


def test_all_rows_of_the_paper_are_asked_for_by_default() -> None:
    assert {name for name in METHODS if published_row(name)} < set(DEFAULT_METHODS)
    experiment = Experiment("overall")
    assert [recipe(experiment, text).label for text in DEFAULT_METHODS] == list(DEFAULT_METHODS)
    assert swept_values("gamma")[:2] == ("0.002", "0.004")
    assert len(swept_values("alpha")) == 11


def test_the_difference_is_counted_in_our_deviations() -> None:
    printed = cell("performance", "ml-100k", "mf", "rns", 5, metric="precision")
    assert Pair(0.3686, 0.0005, printed).difference == pytest.approx(2.0)
    assert Pair(0.3686, None, printed).texts() == (".3686", ".3676", "–")
    assert Pair(0.3686, 0.0, printed).difference is None
    assert Pair(None, None, None).texts() == ("–", "–", "–")
    assert Pair(0.1, 0.0001, printed).texts()[2] == "−2676"
    doubtful = cell("performance", "ml-100k", "mf", "ips-cn", 10, metric="ndcg")
    assert Pair(0.2, 0.1, doubtful).texts() == (".2000 ± .1000", ".1538 !", "+0.5")


def test_a_row_stands_beside_the_paper_row_of_its_method() -> None:
    entry = {"metrics": {"precision@5": {"mean": 0.4, "std": 0.1, "values": [0.3, 0.5]}}}
    what = Experiment("overall", ks=(5,), seeds=2).identity() | {"split": "", "data": {}}
    (grid,) = grids({"identity": what, "entries": {"dns:candidates=2": entry, "ease": entry}})
    dns, ease = (row[0] for row in grid.rows.values())
    assert dns.cell == cell("performance", "ml-100k", "mf", "dns", 5, metric="precision")
    assert ease.cell is None
    lines = [line for line in grid.markdown().splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1, "columns are as wide as their widest cell"
    assert sum("`" in line for line in lines) == 2
    assert len(lines) == 2 + 3 + 1, "a row without a printed one takes one line"


def test_errors_need_the_top_five() -> None:
    what = Experiment("overall", ks=(10,)).identity()
    with pytest.raises(InputError, match="--k 5"):
        markdown({"identity": what, "entries": {}}, "errors")


def test_intervals_over_users_are_kept_though_the_users_are_gone(tmp_path: Path, split: Split) -> None:
    experiment = Experiment("overall", seeds=1, epochs=2, ks=(5,))
    outcome = reproduce(experiment, split, ["auc-ns", "ease"], tmp_path, device="cpu")
    found = outcome.document["over_users"]
    assert [(one["name"], one["k"], one["metric"]) for one in found] == [
        ("ease", 5, "precision"),
        ("ease", 5, "ndcg"),
        ("ease", 5, "ohr"),
    ]
    entries = outcome.document["entries"]
    gap = math.fsum(
        sign * entries[name]["metrics"]["precision@5"]["mean"] for name, sign in (("auc-ns", 1), ("ease", -1))
    )
    assert found[0]["difference"] == pytest.approx(gap, abs=2e-6)
    assert found[0]["low"] <= found[0]["difference"] <= found[0]["high"]
    assert (tmp_path / ".work" / ".gitignore").read_text() == "*\n"
    shutil.rmtree(tmp_path / ".work")
    assert list(differences(tmp_path / ".work" / experiment.name, ["auc-ns", "ease"])) == []
    again = reproduce(experiment, split, ["auc-ns", "ease", "popular"], tmp_path, device="cpu")
    assert again.document["over_users"] == found


def test_until_finds_the_number_of_epochs_on_a_tenth_of_train(split: Split, tmp_path: Path) -> None:
    """One seed on nine tenths says how long; all seeds then train that long on everything."""
    experiment = Experiment("overall", seeds=2, epochs=40, until=2)
    outcome = reproduce(experiment, split, ["rns"], tmp_path, device="cpu")
    entry = outcome.document["entries"]["rns"]
    found = entry["epochs_found"]
    assert 3 <= found < 40
    assert "--until 2" in entry["command"]
    assert len(entry["chosen_epochs"]) == 2
    assert max(entry["chosen_epochs"]) <= found
    longer = reproduce(Experiment("overall", seeds=2, epochs=40, until=9), split, ["rns"], tmp_path / "b")
    assert longer.document["entries"]["rns"]["epochs_found"] > found


def test_until_asks_precision_of_the_part_that_was_held_out(split: Split, tmp_path: Path) -> None:
    experiment = Experiment("overall", seeds=1, epochs=30, until=3)
    one = recipe(experiment, "rns")
    found = epochs_until(one, experiment, split, tmp_path, "cpu")
    rest, held = held_out_share(split.train, HELD_OUT)
    longer = train(
        Split(rest, held, held.take(np.zeros(len(held), dtype=bool)), "by hand"),
        one.method.encoder,
        one.method.sampler,
        [0],
        replace(one.method.settings, patience=None, epochs=found),
        device="cpu",
        stop_on=("precision", 5),
    )
    seen = [record["metrics"]["precision@5"][0] for record in longer.history]
    assert int(np.argmax(seen)) == found - 1 - 3


def test_until_is_for_the_paper_protocol() -> None:
    with pytest.raises(InputError, match="stops on validation anyway"):
        Experiment("overall", protocol="honest", until=5)
    with pytest.raises(InputError, match="from 1 on, not 0"):
        Experiment("overall", until=0)


def test_show_prints_what_is_recorded_and_runs_nothing(tmp_path: Path, data_dir: Path) -> None:
    overall(tmp_path, data_dir, "--methods", "rns,ease")
    assert "overall-ml-100k-mf-paper-paper" in evenhand("reproduce", "show", "--out", tmp_path).out
    shown = evenhand("reproduce", "show", "overall-ml-100k-mf-paper-paper", "--out", tmp_path)
    assert shown.code == 0
    assert shown.out.strip() == (tmp_path / "overall-ml-100k-mf-paper-paper.md").read_text().strip()
    errors = evenhand("reproduce", "show", "overall-ml-100k-mf-paper-paper", "--table", "errors", "--out", tmp_path)
    assert "mse ↓" in errors.out
    asked = ("reproduce", "show", "overall-ml-100k-mf-paper-paper", "--out", tmp_path, "--json")
    assert evenhand(*asked).document == document(tmp_path)
    refused(evenhand("reproduce", "show", "overal", "--out", tmp_path), "unknown experiment")
    refused(evenhand("reproduce", "show", "--out", tmp_path / "nowhere"), "holds no results")


def test_show_lists_runs_that_the_paper_does_not_have(tmp_path: Path) -> None:
    run = Run("loop", "demo", "s", "mf", "rns", 3.0, "c", "h", {}, {}, {"ndcg@10": [0.25, 0.35], "ohr@5": [0.5]})
    Results(tmp_path).add(run)
    ended = evenhand("reproduce", "show", "loop", "--out", tmp_path)
    assert ended.code == 0, ended.err
    assert re.search(r"\| `mf/rns` \| \.3000 ± \.0707 +\| 3 +\|", ended.out)
    assert "ohr" not in ended.out, "another cutoff"
