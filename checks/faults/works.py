"""The kinds of work that are killed: the commands, what they start from, and what they must leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checks.faults.life import Life, forked, import_everything


@dataclass(frozen=True)
class Work:
    """One command. `{in}` stands for the folder of inputs, `{out}` for the one it may write to."""

    name: str
    command: str
    older: str | None = None
    """Makes an output that is there before the command writes over it, with --force."""
    again: str = ""
    """What to add when the command is run again after a kill."""
    trains: bool = False
    """Whether it goes on where it was killed; else it does its work once more."""
    together: bool = False
    """Whether its files belong together, so that old and new ones must not be mixed."""
    within_epochs: bool = False
    every: bool = False
    """Whether it is killed at every single file operation."""
    ranks: int = 1
    """How many processes do it together."""
    script: bool = False
    """Whether it is examples/nightly.py, which writes over nothing."""

    def life(self, inputs: Path, out: Path, again: bool = False, **end: int) -> Life:
        forced = self.older is not None and not self.script
        text = f"{self.command} {self.again if again else '--force' if forced else ''}"
        return Life(
            _filled(text, inputs, out), str(out), within_epochs=self.within_epochs, ranks=self.ranks,
            script=self.script, **end,
        )  # fmt: skip

    def older_life(self, inputs: Path, out: Path) -> Life | None:
        return None if self.older is None else Life(_filled(self.older, inputs, out), str(out), script=self.script)


def _filled(text: str, inputs: Path, out: Path) -> tuple[str, ...]:
    return tuple(word.replace("{in}", str(inputs)).replace("{out}", str(out)) for word in text.split())


_TRAIN = "train {in}/log.csv --out {out}/model --seeds 2 --dim 16 --batch 512 --device cpu"
_TUNE = "tune {in}/log.csv --method dns --epochs 6 --patience 6 --dim 8 --batch 1024 --device cpu --out {out}/search"
_NIGHT = "{out} {in}/day%d.parquet --date 2024-05-0%d --method dns --k 5 --gate today.coverage@5<0.01"
_LISTS = "--train {in}/train.csv --test {in}/test.csv --recs mine={in}/recs.parquet --k 5,10"

WORKS = (
    Work("train mf", f"{_TRAIN} --method auc-ns:alpha=auto --epochs 40 --patience 40", again="--resume",
         trains=True),
    Work("train mf, torch engine, saved within epochs", f"{_TRAIN} --method dns --epochs 6 --engine torch "
         "--batch 2048", again="--resume", trains=True, within_epochs=True),
    Work("train lightgcn", f"{_TRAIN} --encoder lightgcn --method bc-loss --epochs 3", again="--resume",
         trains=True),
    Work("train over an older model", f"{_TRAIN} --method rns --epochs 4", again="--resume", trains=True,
         older=f"{_TRAIN} --method rns --epochs 2 --seeds 1", together=True, every=True),
    Work("compare", "compare {in}/log.csv --methods rns,dns,ease --epochs 10 --seeds 2 --dim 16 --batch 512 "
         "--device cpu --out {out}/run", again="--resume", trains=True),
    Work("tune", "tune {in}/log.csv --method dns --trials 12 --epochs 3 --dim 8 --batch 1024 --device cpu "
         "--side-by-side 2 --out {out}/search", trains=True),
    Work("tune, a short one at every operation", "tune {in}/log.csv --method dns --trials 2 --epochs 1 --dim 8 "
         "--seeds 1 --batch 4096 --device cpu --out {out}/search", trains=True, every=True),
    Work("tune --model --refit", f"{_TUNE} --trials 3 --model {{out}}/model --refit", trains=True),
    Work("compare --refit", "compare {in}/log.csv --methods dns,ease --refit --epochs 8 --seeds 1 --dim 16 --batch 512 "
         "--device cpu --out {out}/run", again="--resume", trains=True),
    Work("blend", "train {in}/log.csv --method blend:parts=popular+ease+dns --seeds 1 --device cpu --out {out}/model",
         again="--resume", trains=True),
    Work("recipe", "train {in}/log.csv --recipe best --budget 1h --device cpu --out {out}/model", again="--resume",
         trains=True),
    Work("train over 2 ranks", f"{_TRAIN} --method dns --epochs 4", again="--resume", trains=True, ranks=2),
    Work("nightly", _NIGHT % (2, 2), older=_NIGHT % (1, 1), script=True, trains=True),
    Work("reproduce", "reproduce overall --data-dir {in}/paper --methods rns,dns --seeds 2 --epochs 6 "
         "--device cpu --out {out}/tables", trains=True),
    Work("update", "update {in}/model {in}/newer.csv --out {out}/model --epochs 3 --device cpu",
         older="update {in}/model {in}/newer.csv --out {out}/model --epochs 1 --device cpu", again="--force",
         together=True, trains=True),
    Work("update of a blend", "update {in}/blend {in}/newer.csv --out {out}/model --device cpu", trains=True),
    Work("export, parquet", "export {in}/model --to parquet --out {out}/vectors", again="--force",
         older="export {in}/model --to parquet --out {out}/vectors --seed 1", together=True),
    Work("export, npz", "export {in}/model --to npz --out {out}/vectors.npz", again="--force",
         older="export {in}/model --to npz --out {out}/vectors.npz --seed 1"),
    Work("recommend", "recommend {in}/model -k 20 --out {out}/recs.parquet", again="--force",
         older="recommend {in}/model -k 5 --out {out}/recs.parquet"),
    Work("rerank", "rerank {in}/recs.parquet --train {in}/train.csv -k 5 --to {out}/lists.csv",
         again="--force", older="rerank {in}/recs.parquet --train {in}/train.csv -k 3 --to {out}/lists.csv"),
    Work("audit report", f"audit {_LISTS} --out {{out}}/report.html --save {{out}}/audit.json",
         again="--force",
         older=f"audit {_LISTS} --hot 0.3 --out {{out}}/report.html --save {{out}}/audit.json"),
)  # fmt: skip


def make_inputs(folder: Path, scratch: Path) -> None:
    """A simulated log, parts of it, a model and its lists. Made by processes of their own."""
    from multiprocessing import get_context

    import_everything()
    maker = get_context("fork").Process(target=_write_logs, args=(folder,))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    for command in (
        "train {in}/log.csv --out {in}/model --seeds 2 --dim 16 --epochs 2 --method rns --device cpu",
        "recommend {in}/model -k 20 --out {in}/recs.parquet",
        "train {in}/log.csv --out {in}/blend --seeds 1 --method blend:parts=popular+dns:shares=0.3+0.7 --device cpu",
    ):
        ended = forked(Life(_filled(command, folder, folder), str(folder)), scratch)
        assert ended.code == 0, ended.err


def _write_logs(folder: Path) -> None:
    from evenhand.data.simulate import simulate_log
    from evenhand.data.write import write_table

    log = simulate_log(200, 150, 6_000)
    split = log.split(test=0.2, validation=0.1, seed=0)
    (folder / "paper").mkdir(parents=True)
    for name, part in (("log", log), ("train", split.train), ("test", split.test)):
        write_table(part.to_table(), folder / f"{name}.csv")
    day = np.random.default_rng(0).integers(1, 3, len(log))
    for number in (1, 2):
        write_table(log.take(day == number).to_table(), folder / f"day{number}.parquet")
    newer = simulate_log(210, 160, 2_000, seed=1)
    write_table(newer.to_table(), folder / "newer.csv")
    small = simulate_log(120, 90, 4_000, seed=2).split(test=0.2, validation=0)
    for name, part in (("paper_train", small.train), ("paper_test", small.test)):
        write_table(part.to_table(), folder / "paper" / f"{name}.csv")
