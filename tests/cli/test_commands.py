"""The command line end to end, on small data."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from evenhand import __version__
from evenhand.cli import main, show
from evenhand.cli.options import Sampling, Training
from evenhand.data.interactions import Interactions
from evenhand.experiments.compare import Row
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.statistics import summarise
from evenhand.models.folder import load
from evenhand.models.item_files import read_groups
from prepared import Program
from run_cli import TINY, evenhand, small_log, write_log

METHODS = ("--methods", "rns,auc-ns:ecdf=16")
LOG = small_log()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, the same log in a train and a test file, and what `train` and `compare` make of these."""
    folder = tmp_path_factory.mktemp("desk")
    held_out = np.arange(len(LOG)) % 5 == 0
    write_log(LOG, folder / "log.csv")
    write_log(LOG.take(~held_out), folder / "train.csv")
    write_log(LOG.take(held_out), folder / "test.csv")
    given = (folder / "train.csv", "--test", folder / "test.csv", *TINY, "--hot", "paper", "--json")
    trained = evenhand("train", *given, "--method", "dns", "--no-refit", "--out", folder / "model")
    compared = evenhand("compare", *given, *METHODS, "--out", folder / "run")
    for name, ended in (("trained", trained), ("compared", compared)):
        assert ended.code == 0, ended.err
        (folder / f"{name}.json").write_text(ended.out)
    return folder


def document(*arguments: object) -> Any:
    ended = evenhand(*arguments, "--json")
    assert (ended.code, ended.err) == (0, "")
    return ended.document


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


# compare


def test_the_document_of_compare_has_the_promised_form(desk: Path) -> None:
    found = read(desk / "compared.json")
    assert found["protocol"] == "honest"
    assert [(row["name"], row["encoder"], row["method"], row["k"]) for row in found["rows"]] == [
        (name, "mf", method, k) for name, method in (("rns", "rns"), ("auc-ns:ecdf=16", "auc-ns")) for k in (5, 10, 20)
    ]
    for row in found["rows"]:
        assert set(row) == {"name", "encoder", "method", "k", "metrics"}
        assert set(METRICS) <= set(row["metrics"])
        for name in METRICS:
            metric = row["metrics"][name]
            assert set(metric) == {"mean", "std", "values"}
            assert len(metric["values"]) == 2
            if None not in metric["values"]:
                assert metric["mean"] == pytest.approx(np.mean(metric["values"]))
                assert metric["std"] == pytest.approx(np.std(metric["values"], ddof=1))
    assert found["verdict"].startswith("Best on validation: ")


def test_one_seed_has_no_spread(desk: Path) -> None:
    found = document("compare", desk / "log.csv", *TINY, "--seeds", "1", "--methods", "rns", "--k", "7")
    (row,) = found["rows"]
    assert row["metrics"]["ndcg"]["std"] is None
    assert row["metrics"]["ndcg"]["values"] == [row["metrics"]["ndcg"]["mean"]]


def test_the_table_shows_what_the_document_holds(desk: Path) -> None:
    arguments = ("compare", desk / "log.csv", *TINY, *METHODS, "--k", "10,5")
    ended, found = evenhand(*arguments), document(*arguments)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"{desk / 'log.csv'}, mf, 2 seeds, protocol honest, top 5"
    assert " ".join(lines[1].split()) == (
        "method ndcg ↑ exposure_gap ↓ precision ↑ recall ↑ f1 ↑ ohr ↓ ocr ↓ uhr ↓ ucr ↓"
    )
    tens = lines.index(f"{desk / 'log.csv'}, mf, 2 seeds, protocol honest, top 10")
    ndcg = {row["name"]: row["metrics"]["ndcg"] for row in found["rows"] if row["k"] == 10}
    for line in lines[tens + 2 : tens + 4]:
        name, *cells = line.split()
        mean, std = (f"{ndcg[name][part]:.4f}".removeprefix("0") for part in ("mean", "std"))
        star = "*" if ndcg[name]["mean"] == max(one["mean"] for one in ndcg.values()) else ""
        assert cells[0] == f"{mean}±{std}{star}"
    assert found["verdict"] in ended.out


def test_demo_also_shows_the_unbiased_test() -> None:
    tiny = ("--epochs", "1", "--seeds", "1", "--dim", "8", "--methods", "rns,auc-ns:ecdf=16", "--k", "10,20")
    ended = evenhand("compare", "demo", *tiny)
    assert (ended.code, ended.err) == (0, "")
    titles = [line for line in ended.out.splitlines() if ", top " in line]
    assert titles == [
        "demo, mf, 1 seed, protocol honest, top 10",
        "demo, mf, 1 seed, protocol honest, top 20",
    ]
    heading = next(line for line in ended.out.splitlines() if "liked when shown at random" in line)
    assert heading.split()[:4] == ["method", "predicts", "the", "log"]
    assert "To show what users would like if shown at random: " in ended.out


def test_a_run_folder_holds_results_lists_and_the_whole_configuration(desk: Path) -> None:
    run = desk / "run"
    assert sorted(path.name for path in run.iterdir()) == [
        "config.json",
        "recommendations.parquet",
        "report.html",
        "results.json",
    ]
    results, printed = read(run / "results.json"), read(desk / "compared.json")
    assert {key: results[key] for key in printed} == printed
    assert set(results["history"]) == {"rns", "auc-ns:ecdf=16"}
    config = read(run / "config.json")
    assert config["encoder"] == {"name": "mf", "dim": 8}
    assert (config["seeds"], config["ks"], config["protocol"]) == ([0, 1], [5, 10, 20], "honest")
    assert config["hot"]["count_all"] is True
    assert config["settings"]["epochs"] == 2
    assert config["settings"]["lr"] is None  # each method has its own
    assert config["methods"]["auc-ns:ecdf=16"]["sampler"]["ecdf"] == 16
    assert config["methods"]["auc-ns:ecdf=16"]["sampler"]["alpha"] == 0.75
    assert config["versions"]["evenhand"] == __version__
    assert config["data"]["splitting"]["split_seed"] == 0
    assert [(one["file"], one["sha256"]) for one in config["data"]["files"]] == [
        (name, hashlib.sha256((desk / name).read_bytes()).hexdigest()) for name in ("train.csv", "test.csv")
    ]


def test_a_run_is_written_over_only_by_force(desk: Path, tmp_path: Path) -> None:
    arguments = ("compare", desk / "log.csv", *TINY, "--methods", "rns", "--out", tmp_path / "deep" / "run")
    assert evenhand(*arguments).code == 0
    first = read(tmp_path / "deep" / "run" / "config.json")
    refused = evenhand(*arguments, "--k", "3")
    assert (refused.code, refused.out) == (2, "")
    assert read(tmp_path / "deep" / "run" / "config.json") == first
    assert evenhand(*arguments, "--k", "3", "--force").code == 0
    assert read(tmp_path / "deep" / "run" / "config.json")["ks"] == [3]


def test_the_lists_of_a_run_can_be_evaluated_name_by_name(desk: Path) -> None:
    lists = desk / "run" / "recommendations.parquet"
    split = ("--train", desk / "train.csv", "--test", desk / "test.csv", "--hot", "paper")
    found = document("evaluate", lists, *split)
    assert [(row["name"], row["k"]) for row in found["rows"]] == [
        (name, k) for name in ("rns", "auc-ns:ecdf=16") for k in (5, 10, 20)
    ]
    for row, reported in zip(found["rows"], read(desk / "compared.json")["rows"], strict=True):
        # The folder holds the lists of each method's best seed.
        assert row["metrics"]["ndcg"]["mean"] in reported["metrics"]["ndcg"]["values"]
        assert (row["encoder"], row["method"]) == (None, None)
    shown = evenhand("evaluate", lists, *split)
    assert shown.out.count("auc-ns:ecdf=16") == 3


# train, recommend, evaluate


def test_evaluating_the_lists_gives_what_training_reported(desk: Path, tmp_path: Path) -> None:
    split = ("--train", desk / "train.csv", "--test", desk / "test.csv", "--hot", "paper")
    trained = read(desk / "trained.json")
    assert evenhand("recommend", desk / "model", "--seed", "all", "--out", tmp_path / "all.parquet").code == 0
    assert evenhand("recommend", desk / "model", "--out", tmp_path / "best.csv").code == 0
    best = trained["seeds"].index(trained["recommending_seed"])
    every, one = (document("evaluate", tmp_path / name, *split)["rows"] for name in ("all.parquet", "best.csv"))
    assert {row["name"] for row in every} == {"all"}
    for reported, of_all, of_best in zip(trained["rows"], every, one, strict=True):
        for name in METRICS:
            values = reported["metrics"][name]["values"]
            assert of_all["metrics"][name]["values"] == values, (name, reported["k"])
            assert of_best["metrics"][name]["values"] == [values[best]]


def test_recommending_in_two_processes_gives_the_same_bytes(desk: Path) -> None:
    asked = ("recommend", str(desk / "model"), "-k", "5")
    here, elsewhere = evenhand(*asked), process("-m", "evenhand", *asked)
    assert (here.code, elsewhere.returncode) == (0, 0), here.err + elsewhere.stderr
    assert here.out == elsewhere.stdout
    lines = here.out.splitlines()
    assert lines[0].replace('"', "") == "user,item,score,rank"
    assert len(lines) == 1 + 5 * LOG.n_users


def test_recommending_for_some_users_and_known_items(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("name,id\nx,7\ny,3\nz,7\n")
    chosen = ("--users", tmp_path / "some.csv", "--user", "id", "-k", "4")
    rows = document("recommend", desk / "model", *chosen)["recommendations"]
    assert [(row["user"], row["rank"]) for row in rows] == [(u, r) for u in (7, 3) for r in (1, 2, 3, 4)]
    known = Interactions.read(desk / "train.csv")
    assert not any(row["item"] in known.row(row["user"]) for row in rows)
    everything = document("recommend", desk / "model", *chosen[:-1], "80", "--known")["recommendations"]
    assert len(everything) == 2 * 80


def test_refitting_uses_all_the_data(desk: Path, tmp_path: Path) -> None:
    arguments = ("train", desk / "log.csv", *TINY, "--method", "rns", "--out", tmp_path / "model", "--refit")
    assert evenhand(*arguments).code == 0
    model = load(tmp_path / "model")
    assert len(model.known) == len(LOG)
    assert len(model.seeds) == 1


def test_a_model_remembers_its_data(desk: Path) -> None:
    record = load(desk / "model").info["data"]
    assert [one["file"] for one in record["files"]] == ["train.csv", "test.csv"]
    assert record["files"][0]["sha256"] == hashlib.sha256((desk / "train.csv").read_bytes()).hexdigest()


# data in and its splits


def test_every_kind_of_file_gives_the_same_numbers(desk: Path, tmp_path: Path) -> None:
    write_log(LOG, tmp_path / "log.parquet")
    write_log(LOG, tmp_path / "log.tsv")
    times = LOG.timestamps
    assert times is not None
    rows = zip(LOG.users, LOG.items, times, strict=True)
    (tmp_path / "log.dat").write_text("".join(f"{u}::{i}::5::{int(t)}\n" for u, i, t in rows))
    columns = pq.read_table(tmp_path / "log.parquet").rename_columns({"user": "who", "item": "what"})
    pq.write_table(columns, tmp_path / "named.pq")
    wanted = document("compare", desk / "log.csv", *TINY, "--methods", "rns", "--split", "time")["rows"]
    for name, more in (
        ("log.parquet", ()),
        ("log.tsv", ()),
        ("log.dat", ()),
        ("named.pq", ("--user", "who", "--item", "what")),
    ):
        found = document("compare", tmp_path / name, *TINY, "--methods", "rns", "--split", "time", *more)
        assert found["rows"] == wanted, name


def test_leave_last_out_and_time_splits_hold_out_the_latest(desk: Path, tmp_path: Path) -> None:
    assert LOG.timestamps is not None
    last = [int(LOG.timestamps[LOG.users == user].argmax()) for user in range(LOG.n_users)]
    arguments = ("train", desk / "log.csv", *TINY, "--method", "rns", "--no-refit", "--protocol", "paper")
    assert evenhand(*arguments, "--split", "leave-last-out", "--out", tmp_path / "last").code == 0
    known = load(tmp_path / "last").known
    assert len(known) == len(LOG) - LOG.n_users
    for user, place in enumerate(last):
        assert LOG.row(user)[place] not in known.row(user)
    assert evenhand(*arguments, "--split", "time", "--out", tmp_path / "time").code == 0
    known = load(tmp_path / "time").known
    is_known = known.contains(LOG.users, LOG.items)
    assert is_known.sum() == len(LOG) - round(0.2 * len(LOG))
    assert LOG.timestamps[is_known].max() < LOG.timestamps[~is_known].min()


def test_the_paper_protocol_has_no_validation_and_all_epochs(desk: Path) -> None:
    found = document("compare", desk / "log.csv", *TINY, "--methods", "rns,dns", "--protocol", "paper")
    assert found["protocol"] == "paper"
    assert "no validation" in found["data"]
    assert found["configuration"]["hot"]["count_all"] is True
    assert found["configuration"]["settings"]["patience"] is None
    assert found["verdict"].startswith("Best on test, as in the paper: ")


def test_groups_from_a_file_drive_fairstatic(desk: Path, tmp_path: Path) -> None:
    genres = tmp_path / "items.csv"
    genres.write_text("item,genre\n" + "".join(f"{i},{'rare' if i % 4 else 'common'}\n" for i in range(80)))
    plain = document("compare", desk / "log.csv", *TINY, "--methods", "fairstatic")
    arguments = ("compare", desk / "log.csv", *TINY, "--methods", "rns,fairstatic", "--groups")
    found = document(*arguments, f"{genres}:genre", "--out", tmp_path / "run")
    of = {(row["name"], row["k"]): row["metrics"]["ndcg"]["values"] for row in found["rows"]}
    assert of["fairstatic", 10] != plain["rows"][1]["metrics"]["ndcg"]["values"]
    config = read(tmp_path / "run" / "config.json")
    assert config["methods"]["fairstatic"]["sampler"]["groups"] == {"groups": 2, "items": 80}
    assert config["data"]["groups"] == "items.csv:genre"  # no folder: people publish what they made
    assert [one["file"] for one in config["data"]["files"]] == ["log.csv", "items.csv"]
    assert read_groups(f"{genres}:genre", LOG)[:5] == (0, 1, 1, 1, 0)


# data, methods, help


def test_describe_counts(desk: Path) -> None:
    found = document("data", "describe", desk / "log.csv")
    assert (found["users"], found["items"], found["pairs"]) == (60, 80, len(LOG))
    ended = evenhand("data", "describe", desk / "log.csv")
    assert ended.code == 0
    assert f"interactions    {len(LOG):,}\n" in ended.out


def test_datasets_are_listed_with_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_text("1\t2\t3\t4\n")
    found = {one["name"]: one["found"] for one in document("data", "list")["datasets"]}
    assert found["ml-100k"] == str(tmp_path / "ml-100k")
    assert found["coat"] is None
    ended = evenhand("data", "list")
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == list(found)


def test_methods_are_listed_with_their_defaults() -> None:
    found = {one["name"]: one["parameters"] for one in document("methods")["methods"]}
    assert {"rns", "pns", "dns", "fairstatic", "auc-ns"} <= set(found)
    assert found["dns"] == {"candidates": 5, "top": 1}
    ended = evenhand("methods")
    assert "alpha=0.75 (0.5..1), beta=0.01 (0.001..1:log)" in ended.out


@pytest.mark.parametrize("command", ["compare", "train", "recommend", "evaluate", "methods", "data"])
def test_every_command_has_help(command: str) -> None:
    for flag in ("--help", "-h"):
        ended = evenhand(command, flag)
        assert (ended.code, ended.err) == (0, "")
        assert f"Usage: evenhand {command}" in ended.out


def test_help_tells_the_defaults_that_the_library_has() -> None:
    """They stand there as text, since help must not load what holds them."""
    from evenhand.cli.compare_command import command
    from evenhand.encoders import LightGCN
    from evenhand.experiments.compare import DEFAULT_METHODS
    from evenhand.samplers import AUCSampler
    from evenhand.training.settings import Settings

    held = {f.name: f.default for kind in (Settings, LightGCN, AUCSampler) for f in fields(kind)}
    held["batch"] = Settings().positives
    values = {}
    for group in (Training, Sampling):
        for name, hint in get_type_hints(group, include_extras=True).items():
            found = re.search(r"\(default ([0-9.]+)\)", get_args(hint)[1])
            if found:
                values[name] = float(found[1])
    assert values == {name: held[name] for name in values}
    assert {"epochs", "batch", "dim", "layers", "patience", "alpha", "candidates"} <= set(values)
    assert signature(command).parameters["methods"].default == ",".join(DEFAULT_METHODS)


@pytest.mark.parametrize("options", [("--seeds", 2), ("--protocol", "paper"), ("--tune", 1), ("--encoder", "lightgcn")])
def test_compare_without_methods_has_baselines_beside_what_is_trained(options: tuple[object, ...], desk: Path) -> None:
    rows = document("compare", desk / "log.csv", *TINY, *options, "--k", "5")["rows"]
    trained = [row["name"] for row in rows if row["encoder"] is not None]
    assert trained == ["rns", "pns", "dns", "auc-ns"]
    assert [row["name"] for row in rows][: -len(trained)] == ["popular", "itemknn", "gfcf", "als"]


def test_help_groups_the_options_of_compare() -> None:
    text = evenhand("compare", "--help").out
    for panel, option in (
        ("Training", "--weight-decay"),
        ("Sampler", "--ecdf"),
        ("Split", "--split-seed"),
        ("Reading", "--no-header"),
    ):
        assert text.index(f"─ {panel} ") < text.index(option)


def test_help_and_version_load_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['evenhand', sys.argv[1]]\n"
        "from evenhand.cli import main\n"
        "try: main()\n"
        "finally: print({'torch', 'numpy', 'pyarrow'} & set(sys.modules) or 'light', file=sys.stderr)"
    )
    helped, version = (process("-c", script, flag) for flag in ("--help", "--version"))
    assert (helped.returncode, helped.stderr) == (0, "light\n")
    assert "compare" in helped.stdout
    assert (version.stdout, version.stderr) == (f"evenhand {__version__}\n", "light\n")


@pytest.mark.parametrize(
    ("asked", "reader", "read"),
    [
        ("recommend {model} -k 80 --known", "head -1", ["user,item,score,rank"]),
        ("recommend {model} -k 80 --known --json", "true", []),
        ("similar {model} 3 -k 79", "true", []),
    ],
)
def test_a_reader_who_leaves_early_is_no_error(asked: str, reader: str, read: list[str], desk: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(reader.split(), text=True, **pipes) as reading:  # type: ignore[call-overload]
        with Program(main, *asked.format(model=desk / "model").split(), stdout=reading.stdin.fileno()) as writing:
            reading.stdin.close()
            assert writing.communicate()[1] == ""
            assert writing.returncode == 0
        assert reading.stdout.read().replace('"', "").splitlines() == read


# small things a newcomer meets


@pytest.mark.parametrize("command", ["compare {log}", "train {log} --out {out}", "data describe {log}"])
def test_one_column_cannot_be_users_and_items(command: str, desk: Path, tmp_path: Path) -> None:
    words = command.format(log=desk / "log.csv", out=tmp_path / "m").split()
    ended = evenhand(*words, "--user", "item", "--item", "item")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "evenhand: --user and --item both name the column 'item'; name one column for each.\n"


def test_one_column_of_a_history_cannot_be_both(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id\n3\n4\n")
    columns = ("--user", "id", "--item", "id")
    ended = evenhand("recommend", desk / "model", "--new-users", tmp_path / "new.csv", *columns)
    assert ended.code == 2
    assert "both name the column 'id'" in ended.err
    # Two files may call their columns alike.
    both = ("--users", tmp_path / "new.csv", "--exclude", tmp_path / "new.csv", "-k", "2")
    found = document("recommend", desk / "model", *both, *columns)["recommendations"]
    assert [row["user"] for row in found] == [3, 3, 4, 4]


def test_one_is_reported_in_the_singular(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("user\n3\n")
    given = ("recommend", desk / "model", "--users", tmp_path / "one.csv", "--out", tmp_path / "out.csv")
    assert evenhand(*given, "-k", "1").out == f"1 recommendation written to {tmp_path / 'out.csv'}.\n"


@pytest.mark.parametrize("columns", [("user", "item"), ("who", "what"), ("a", "b")])
def test_lists_may_call_their_columns_as_they_like(columns: tuple[str, str], desk: Path, tmp_path: Path) -> None:
    lists, (user, item) = pq.read_table(desk / "run" / "recommendations.parquet"), columns
    pq.write_table(lists.rename_columns({"user": user, "item": item}), tmp_path / "lists.parquet")
    for part in ("train", "test"):
        text = (desk / f"{part}.csv").read_text()
        (tmp_path / f"{part}.csv").write_text(text.replace("user", "who").replace("item", "what"))
    given = ("--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv", "--user", "who")
    given = ("evaluate", tmp_path / "lists.parquet", *given, "--item", "what")
    named = ("--rec-user", "a", "--rec-item", "b") if columns == ("a", "b") else ()
    found = document(*given, *named)
    plain = ("--train", desk / "train.csv", "--test", desk / "test.csv")
    assert found == document("evaluate", desk / "run" / "recommendations.parquet", *plain)
    if named:
        ended = evenhand(*given)
        assert ended.code == 2
        assert ended.err.endswith("name the right one with columns= or --rec-user.\n")


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, width in (("83", 83), ("", 1000), ("wide", 1000), ("0", 1000)):
        monkeypatch.setenv("COLUMNS", text)
        assert show.console().width == width
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(len, evenhand("methods").out.splitlines())) <= 70


# --sampler


def test_a_sampler_for_every_method(desk: Path) -> None:
    asked = ("compare", desk / "log.csv", *TINY, "--k", "5")
    short = document(*asked, "--methods", "ips-cn:smoothing=0.5,dns,ease", "--sampler", "dns")
    long = document(*asked, "--methods", "ips-cn@dns:smoothing=0.5,dns,ease")
    assert [row["name"] for row in short["rows"]] == ["ips-cn@dns:smoothing=0.5", "dns", "ease"]
    assert short["rows"] == long["rows"]
    flagged = document(*asked, "--methods", "ips-cn@dns", "--sampler", "dns", "--candidates", "3")
    assert flagged["configuration"]["methods"]["ips-cn@dns"]["sampler"]["candidates"] == 3


def test_train_and_tune_take_a_sampler(desk: Path, tmp_path: Path) -> None:
    asked = (desk / "log.csv", *TINY, "--method", "ips-cn", "--sampler", "pns")
    assert evenhand("train", *asked, "--out", tmp_path / "m").code == 0
    assert load(tmp_path / "m").info["sampler"]["kind"] == "PopularitySampler"
    found = document("tune", *asked, "--trials", "1", "--out", tmp_path / "t")
    assert found["method"].startswith("ips-cn@pns")


@pytest.mark.parametrize(
    ("methods", "sampler", "message"),
    [
        ("ips-cn@dns", "pns", "'ips-cn@dns' and --sampler pns name two samplers; leave one of them out."),
        ("ease,als", "dns", "--sampler has no effect on ease, als; leave it out."),
        ("rns,auc-ns", "dns", "with --sampler dns, rns@dns and auc-ns@dns are the same; name one of them."),
        ("rns", "dnss", "unknown sampler 'dnss'; did you mean 'dns'? Known: auc-ns, dns, fairstatic, pns, "),
        ("rns", "bc-loss", "unknown sampler 'bc-loss'; "),
    ],
)
def test_samplers_that_make_no_sense_are_refused(methods: str, sampler: str, message: str, desk: Path) -> None:
    ended = evenhand("compare", desk / "log.csv", "--methods", methods, "--sampler", sampler)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"evenhand: {message}")


# the printed tables


def drawn(rows: list[Row], width: int) -> tuple[list[str], list[str]]:
    """(the lines, the notes) on a terminal of this width."""
    out = Console(width=width, file=StringIO(), color_system=None)
    notes = show.print_rows(rows, "title", out)
    return out.file.getvalue().splitlines(), notes  # type: ignore[attr-defined]


def row(name: str, *values: float) -> Row:
    return Row(name, "mf", "rns", 10, {metric: summarise(values) for metric in METRICS})


LABELS = ("rns", "dns:candidates=2", "auc-ns:alpha=auto:ecdf=64")


@pytest.mark.parametrize("width", range(54, 170, 3))
def test_a_table_fits_its_terminal_and_cuts_nothing(width: int) -> None:
    lines, notes = drawn([row(name, 0.1 + i, 0.12 + i) for i, name in enumerate(LABELS)], width)
    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines[2:5]] == list(LABELS)
    assert "…" not in "".join(lines)
    assert bool(notes) == ("recall" not in lines[1])


@pytest.mark.parametrize(
    ("width", "metrics", "digits"),
    [
        (145, "ndcg exposure_gap precision recall f1 ohr ocr uhr ucr", 4),
        (116, "ndcg exposure_gap precision ohr ocr uhr ucr", 4),
        (105, "ndcg exposure_gap precision ohr ocr uhr ucr", 3),
        (92, "ndcg exposure_gap ohr ocr uhr ucr", 3),
        (20, "ndcg exposure_gap", 3),
    ],
)
def test_the_widest_layout_that_fits_is_taken(width: int, metrics: str, digits: int) -> None:
    lines, _ = drawn([row("dns:candidates=2", 0.25, 0.25), row("rns", 0.5, 0.5)], width)
    assert [word for word in lines[1].split() if word.replace("_", "").isalnum()] == ["method", *metrics.split()]
    assert lines[3].split()[1].rstrip("*") == f".{'5':0<{digits}}±.{'0' * digits}"


def test_the_best_of_each_column_is_starred() -> None:
    lines, _ = drawn([row("a", 0.1), row("b", 0.3), row("c", 0.3), row("d", float("nan"))], 200)
    cells = {line.split()[0]: line.split()[1:] for line in lines[2:6]}
    # ndcg, precision, recall and f1 are the higher the better, the exposure gap and the four rates the lower.
    assert cells["a"] == [".1000", ".1000*"] + [".1000"] * 3 + [".1000*"] * 4
    assert cells["b"] == cells["c"] == [".3000*", ".3000"] + [".3000*"] * 3 + [".3000"] * 4
    assert cells["d"] == ["–"] * 9
    (only,) = (line for line in drawn([row("a", 0.1)], 200)[0] if line.startswith("a"))
    assert "*" not in only
    out = Console(width=200, file=StringIO(), force_terminal=True)
    show.print_rows([row("a", 0.1), row("b", 0.3)], "title", out)
    assert "\x1b[1;32m.3000*" in out.file.getvalue()  # type: ignore[attr-defined]


def test_a_rate_without_a_denominator_gets_no_star() -> None:
    """Who shows no cold item has an OCR of 0."""
    silent = row("a", 0.0)
    silent = replace(silent, metrics={**silent.metrics, "ocr_defined": summarise([float("nan")])})
    lines, _ = drawn([silent, row("b", 0.1), row("c", 0.3)], 200)
    # ohr, ocr, uhr, ucr
    assert [line.split()[-4:] for line in lines[2:4]] == [
        [".0000*", ".0000", ".0000*", ".0000*"],
        [".1000", ".1000*", ".1000", ".1000"],
    ]


def test_a_rate_that_few_users_have_gets_no_star() -> None:
    """Who shows a cold item to one user in five hundred, and a wrong one, has an OCR of .002."""
    rare = row("a", 0.002)
    rare = replace(rare, metrics={**rare.metrics, "ocr_defined": summarise([1.0])})
    lines, _ = drawn([rare, row("b", 0.1), row("c", 0.3)], 200)
    assert [line.split()[-3] for line in lines[2:4]] == [".0020", ".1000*"]


def test_labels_that_look_like_markup_are_printed_as_they_are() -> None:
    lines, _ = drawn([row("[bold]x[/bold]", 0.1)], 200)
    assert lines[2].startswith("[bold]x[/bold]  ")


def test_data_split_writes_the_parts_of_a_log(tmp_path: Path) -> None:
    file = write_log(LOG, tmp_path / "log.csv")
    ended = evenhand("data", "split", file, "--out", tmp_path / "parts", "--to", "parquet", "--json")
    assert ended.code == 0, ended.err
    expected = LOG.split(test=0.2, validation=0.1)
    assert ended.document["pairs"] == {name: len(part) for name, part in expected.parts().items()}
    for name, part in expected.parts().items():
        written = pq.read_table(tmp_path / "parts" / f"{name}.parquet")
        assert written.num_rows == len(part)
        assert set(zip(*(map(str, written[c].to_pylist()) for c in ("user", "item")), strict=True)) == set(
            zip(*(map(str, part.to_table()[c].to_pylist()) for c in ("user", "item")), strict=True)
        )
    again = evenhand("data", "split", file, "--out", tmp_path / "parts")
    assert again.code == 2
    assert "--force" in again.err
    wrong = evenhand("data", "split", file, "--out", tmp_path / "x", "--to", "xlsx")
    assert wrong.code == 2
    assert not (tmp_path / "x").exists()
    two = evenhand("data", "split", file, "--out", tmp_path / "two", "--validation-share", "0", "--json")
    assert sorted(two.document["pairs"]) == ["test", "train"]
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == ["test.csv", "train.csv"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.9, []), (12.4, ["compiling took 12 s, once; budgets and times leave it out"])]
)
def test_a_wait_for_compiling_is_named(seconds: float, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "compile_time", lambda: seconds)
    assert show.compile_note() == said
