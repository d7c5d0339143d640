"""A person's mistake ends with exit code 2 and one line that says what to do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from run_cli import TINY, Ended, evenhand, small_log, write_log

FILES = {
    "other.csv": "person,thing\n1,2\n3,4\n",
    "empty.csv": "",
    "header.csv": "user,item\n",
    "hole.csv": "user,item\n1,2\n3,\n5,6\n",
    "one.csv": "user,item\n1,7\n2,7\n3,7\n",
    "words.csv": "user,item,rating\n1,2,5\n1,3,often\n2,2,1\n",
    "ragged.csv": "user,item\n1,2\n1,3,4\n",
    "timeless.csv": "user,item\n" + "".join(f"{u},{i}\n" for u in range(9) for i in range(9) if u != i),
    "genres.csv": "item,genre\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(80)),
    "few.csv": "item,genre\n" + "".join(f"{i},a\n" for i in range(73)),
    "torn.csv": "item,genre\n" + "".join(f"{i},a\n" for i in range(80)) + "3,b\n",
    "full/notes.txt": "mine",
    "a_file": "mine",
    "broken/config.json": "{}",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files, and a model."""
    folder = tmp_path_factory.mktemp("desk")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    write_log(small_log(), folder / "log.csv")
    pq.write_table(pa.table({"user": [0.5, 1.5], "item": [1, 2]}), folder / "fractions.parquet")
    ended = evenhand("train", folder / "log.csv", *TINY, "--method", "rns", "--no-refit", "--out", folder / "model")
    assert ended.code == 0, ended.err
    return folder


def refused(desk: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The one line, after checking that there is nothing else."""
    monkeypatch.chdir(desk)
    before = contents(desk)
    ended = evenhand(*arguments)
    assert ended.code == 2, ended
    assert ended.out == ""
    assert ended.err.startswith("evenhand: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    assert "Traceback" not in ended.err
    assert contents(desk) == before
    return ended.err


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder" for path in folder.rglob("*")
    }


FILE_MISTAKES = {
    "no-such.csv": ["there is no file", "'no-such.csv'"],
    "other.csv": ["no column 'user'", "person, thing", "--user"],
    "fractions.parquet": ["column 'user'", "integers or strings"],
    "words.csv": ["column 'rating'", "'often'", "line 3"],
    "empty.csv": ["'empty.csv'", "empty"],
    "header.csv": ["'header.csv'", "no rows"],
    "ragged.csv": ["line 3", "3 fields"],
    "one.csv": ["'one.csv'", "at least two items"],
    "full": ["full/notes.txt' has no column 'user'"],
}


@pytest.mark.parametrize(("file", "parts"), FILE_MISTAKES.items(), ids=list(FILE_MISTAKES))
def test_a_bad_file_is_named_with_its_fault(
    desk: Path, monkeypatch: pytest.MonkeyPatch, file: str, parts: list[str]
) -> None:
    target = f"./{file}"
    for command in (("compare",), ("train", "--out", "new"), ("data", "describe")):
        message = refused(desk, monkeypatch, *command, target)
        for part in parts:
            assert part.replace(f"'{file}'", f"'{target}'") in message or part in message


OPTION_MISTAKES: dict[str, list[str]] = {
    # list lengths
    "--k 81": ["81", "80 items"],
    "--k 0": ["--k", "'0'"],
    "--k abc": ["--k", "'abc'"],
    "--k ,": ["--k", "','"],
    "--k 5,-1": ["--k", "'5,-1'"],
    # sampler parameters, by flag and by method
    "--alpha .3": ["alpha", "[0.5, 1]", "0.3"],
    "--alpha 1.2": ["alpha", "1.2"],
    "--alpha nan": ["alpha", "nan"],
    "--alpha often": ["alpha", "'auto'", "often"],
    "--beta -1": ["beta", "at least 0"],
    "--beta nan": ["beta", "nan"],
    "--beta inf": ["beta", "inf"],
    "--gamma 2": ["gamma", "[0, 1]"],
    "--gamma nan": ["gamma", "nan"],
    "--candidates 0": ["candidates", "from 1 to 10,000"],
    "--probes 0": ["probes", "from 1 to 10,000"],
    "--ecdf 0": ["ecdf", "0"],
    "--ecdf foo": ["ecdf", "'exact'", "foo"],
    "--ecdf 2.5": ["ecdf", "2.5"],
    "--ecdf nan": ["ecdf", "nan"],
    "--methods auc-ns:alpha=.3": ["alpha", "0.3"],
    "--methods auc-ns:gamma=nan": ["gamma", "nan"],
    "--methods dns:candidates=1.5": ["candidates", "1.5"],
    "--methods dns:candidates": ["'candidates' has no '='"],
    "--methods dns:candidate=2": ["'candidate'", "did you mean 'candidates'"],
    "--methods rns:alpha=.7": ["'rns' has no parameters"],
    "--methods rns,rns": ["once", "rns, rns"],
    "--methods ,": ["at least one method"],
    # names
    "--methods auc-n": ["'auc-n'", "did you mean 'auc-ns'"],
    "--encoder lightgnc": ["'lightgnc'", "did you mean 'lightgcn'"],
    "--protocol papper": ["'papper'", "did you mean 'paper'"],
    "--split tiem": ["'tiem'", "did you mean 'time'"],
    "--hot papr": ["'papr'", "paper, honest"],
    "--hot 0": ["'0'", "between 0 and 1"],
    "--hot nan": ["'nan'", "between 0 and 1"],
    "--device gpu": ["'gpu'", "Known: auto, cpu, cuda"],
    # training
    "--seeds 0": ["seeds", "0"],
    "--seeds -2": ["seeds", "-2"],
    "--epochs 0": ["epochs", "at least 1"],
    "--batch 0": ["batch", "at least 1"],
    "--dim 0": ["dim", "at least 1"],
    "--lr 0": ["lr", "positive"],
    "--lr nan": ["lr", "nan"],
    "--lr inf": ["lr", "inf"],
    "--weight-decay -1": ["weight_decay", "-1"],
    "--weight-decay nan": ["weight_decay", "nan"],
    "--patience 0": ["patience", "at least 1"],
    "--milestones 60,20": ["milestones", "ascending"],
    "--milestones soon": ["--milestones", "'soon'"],
    "--split-seed -1": ["split seed", "-1"],
    "--encoder lightgcn --layers -1": ["layers", "at least 0"],
    "--encoder lightgcn --sampler-scores cooked": ["'cooked'", "propagated, raw"],
    # contradictions
    "--layers 2": ["--layers", "lightgcn"],
    "--sampler-scores raw": ["--sampler-scores", "lightgcn"],
    "--protocol paper --patience 3": ["--patience", "honest"],
    "--methods rns,dns --alpha .7": ["--alpha", "rns, dns"],
    "--groups genres.csv:genre": ["--groups", "no effect"],
    "--test log.csv --split time": ["--split", "test file"],
    "--test log.csv --test-part random": ["--test-part", "test file"],
    "--test-part random": ["--test-part", "--test"],
    "--min-rating 3": ["no rating column", "--rating"],
    # groups
    "--methods fairstatic --groups genres.csv": ["FILE:COLUMN", "'genres.csv'"],
    "--methods fairstatic --groups :genre": ["FILE:COLUMN", "':genre'"],
    "--methods fairstatic --groups genres.csv:gender": ["no column 'gender'", "'genre'"],
    "--methods fairstatic --groups nowhere.csv:genre": ["there is no file 'nowhere.csv'"],
    "--methods fairstatic --groups few.csv:genre": ["'few.csv'", "no group to 7 items (73, 74, 75, 76, 77…)"],
    "--methods fairstatic --groups torn.csv:genre": ["'torn.csv'", "several groups to 1 item (3)"],
    # where to write
    "--out full": ["full already holds files", "--force"],
    "--out a_file": ["a_file is a file"],
    "--out a_file/run": ["a_file is a file"],
    # Typer's own
    "--seeds x": ["'--seeds'", "integer", "evenhand compare --help"],
    "--beta x": ["'--beta'", "evenhand compare --help"],
    "--sedes 3": ["--sedes", "--seeds"],
    "surplus": ["surplus"],
}


@pytest.mark.parametrize(("options", "parts"), OPTION_MISTAKES.items(), ids=list(OPTION_MISTAKES))
def test_a_bad_option_is_named_with_what_would_do(
    desk: Path, monkeypatch: pytest.MonkeyPatch, options: str, parts: list[str]
) -> None:
    out = () if "--out" in options else ("--out", "new")
    message = refused(desk, monkeypatch, "compare", "log.csv", *out, *options.split())
    for part in parts:
        assert part in message


MORE_MISTAKES: dict[str, list[str]] = {
    "compare dmeo": ["unknown dataset 'dmeo'", "did you mean 'demo'"],
    "compare timeless.csv --split time": ["timestamps", "--timestamp"],
    "compare timeless.csv --split leave-last-out": ["timestamps", "--timestamp"],
    "compare timeless.csv --test-from 2026-09-01": ["timestamps", "--timestamp"],
    "compare timeless.csv --validation time": ["timestamps", "--timestamp"],
    "compare timeless.csv --since 2026-09-01": ["no timestamp column for since or until", "--timestamp"],
    "compare hole.csv --strict": ["column 'item'", "line 3"],
    "compare log.csv --split popularity-shfit": ["did you mean 'popularity-shift'"],
    "compare log.csv --validation tiem": ["unknown split 'tiem'", "did you mean 'time'"],
    "compare log.csv --validation time --protocol paper": ["--validation", "honest protocol"],
    "compare log.csv --test log.csv --test-from 3": ["--test-from", "test file"],
    "compare log.csv --test-from 3 --split per-user": ["--test-from splits by time"],
    "compare log.csv --weight qty": ["no column 'qty'"],
    "compare demo --test-part uniform --test-from 3": ["--test-from and --test-part exclude each other"],
    "compare demo --since 2026-09-01": ["--since is for files"],
    "data split log.csv --how popularity-shift --gap 3d --out new": ["belongs to a time split"],
    "compare log.csv --test no-such.csv": ["there is no file 'no-such.csv'"],
    "compare log.csv --test log.csv": ["test part", "only pairs of an earlier part"],
    "compare demo --user person": ["--user", "demo"],
    "compare demo --test-part uniform --split per-user": ["--split per-user", "--test-part"],
    "compare demo --test-part unifrom": ["'unifrom'", "did you mean 'uniform'"],
    "compare demo --min-rating 3": ["demo", "no ratings"],
    "compare coat --data-dir nowhere": ["nowhere does not exist"],
    "compare coat": ["coat was not found", "train.ascii"],
    "data fetch demo": ["demo", "simulator"],
    "data fetch coat": ["coat cannot be downloaded", "train.ascii"],
    "data fetch ml-100": ["'ml-100'", "did you mean 'ml-100k'"],
    "train log.csv": ["'--out'", "evenhand train --help"],
    "train log.csv --out model": ["model already holds files", "--force"],
    "train log.csv --out new --k 81": ["81", "80 items"],
    "train log.csv --out new --method dns:candidates=0": ["candidates", "from 1 to 10,000"],
    "recommend full": ["full is not a model folder"],
    "recommend nowhere": ["nowhere does not exist"],
    "recommend broken": ["broken cannot be read as a model"],
    "recommend model --users other.csv": ["no column 'user'", "--user"],
    "recommend model -k 81": ["81", "80 items"],
    "recommend model -k 0": ["k must", "0"],
    "recommend model --seed 7": ["no seed 7", "0, 1"],
    "recommend model --seed last": ["--seed", "'last'"],
    "recommend model --out log.csv": ["log.csv exists already", "--force"],
    "recommend model --out lists.xls": ["'lists.xls'", ".parquet, .csv, .tsv"],
    "recommend model --out nowhere/lists.csv": ["nowhere does not exist"],
    "recommend model --out a_file/lists.csv": ["a_file"],
    "evaluate no-such.csv --train log.csv --test timeless.csv": ["there is no file 'no-such.csv'"],
    "evaluate log.csv --train log.csv --test timeless.csv": ["'rank' nor 'score'"],
    "evaluate log.csv --train log.csv": ["'--test'", "evenhand evaluate --help"],
    "benchmark log.csv --methods eas": ["unknown method 'eas'", "did you mean 'ease'"],
    "benchmark log.csv --methods lightgcn/ease": ["ease is not trained"],
    "benchmark log.csv --methods ease,ease": ["each once"],
    "benchmark log.csv --tests shfit": ["unknown test 'shfit'", "did you mean 'shift'"],
    "benchmark log.csv --tests exposure": ["unknown test of a log 'exposure'"],
    "benchmark log.csv --tests given": ["no train and test files"],
    "benchmark log.csv --methods recipe --budget soon": ["a budget is a time", "'soon'"],
    "benchmark log.csv --methods ease --budget 10m": ["--budget belongs to the recipe"],
    "benchmark log.csv --seeds 0": ["--seeds", "0"],
    "benchmark log.csv --tune -1": ["--tune", "-1"],
    "benchmark log.csv log.csv": ["the same name"],
    "benchmark log.csv --out a_file": ["a_file is a file"],
    "benchmark timeless.csv --tests time": ["timestamps", "--timestamp"],
    "benchmark other.csv": ["no column 'user'", "--user"],
    "benchmark no-such.csv": ["there is no file 'no-such.csv'"],
    "benchmark gowala": ["unknown data set 'gowala'", "did you mean 'gowalla'"],
    "benchmark gowalla --tests time": ["gowalla", "no test time"],
    "benchmark -": ["standard input"],
    "benchmark --data-dir full": ["there is no data for any of these tests"],
    "benchmark coat --data-dir nowhere": ["nowhere does not exist"],
    "comapre log.csv": ["'comapre'", "compare"],
    "--nonsense": ["--nonsense", "evenhand --help"],
}


@pytest.mark.parametrize(("line", "parts"), MORE_MISTAKES.items(), ids=list(MORE_MISTAKES))
def test_every_command_says_what_is_wrong_in_one_line(
    desk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, parts: list[str]
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "empty-cache"))
    message = refused(desk, monkeypatch, *line.split())
    for part in parts:
        assert part in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(desk, monkeypatch, "compare", "log.csv", "--device", "cuda", "--out", "new")
    assert "no CUDA device 'cuda' is available" in message


def test_a_failed_run_ends_with_one_and_writes_nothing(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    ended = evenhand("compare", "log.csv", *TINY, "--methods", "rns", "--lr", "1e38", "--out", "new")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("evenhand: the loss became")
    assert not Path("new").exists()


# What is odd but no mistake.


def test_unknown_test_items_and_users_are_counted_and_kept(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    test = tmp_path / "test.csv"
    test.write_text("user,item\n900,1\n901,2\n3,800\n3,801\n3,802\n")
    ended = evenhand("compare", log, "--test", test, *TINY, "--methods", "rns")
    assert ended.code == 0, ended.err
    assert ended.out.count("3 items and 2 users of the test part never occur in train") == 1


def test_a_user_with_every_item_is_skipped_and_reported_once(tmp_path: Path) -> None:
    rows = [f"0,{item}" for item in range(6)]
    rows += [f"{user},{item}" for user in range(1, 12) for item in range(6) if (user + item) % 3]
    (tmp_path / "log.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    (tmp_path / "test.csv").write_text("user,item\n" + "\n".join(f"{user},{-user % 3}" for user in range(1, 12)) + "\n")
    # No validation part, which would take some items from the user that has them all.
    ended = evenhand(
        "compare",
        tmp_path / "log.csv",
        "--test",
        tmp_path / "test.csv",
        *TINY,
        "--k",
        "2",
        "--protocol",
        "paper",
        "--methods",
        "rns,dns,pns,fairstatic,auc-ns",
    )
    assert ended.code == 0, ended.err
    assert ended.out.count("1 user has nothing left to sample as a negative; skipped.") == 1


def test_interrupting_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evenhand.data.datasets.load.list_datasets", interrupt)
    assert evenhand("data", "list") == Ended(130, "", "evenhand: stopped.\n")
