"""What checkpoints cost: the share of a run's time that goes into writing them, and their size.

    python benchmarks/checkpoint.py [RATINGS] [--epochs 5] [--dim 64] [--method rns] [--seeds 3]

Without a file, the data is a simulated log of MovieLens 1M's size. The same run is made without and with
checkpoints, at the default rate; both must end with the same model.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import torch

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.data.splits import Split
from evenhand.methods import parse
from evenhand.training import Fit, Settings, train
from evenhand.training.checkpoints import Checkpoints


class Watch:
    """Measures every call of `Checkpoints.save` from outside."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.sizes: list[int] = []
        save = Checkpoints.save

        def timed(saved: Checkpoints, *arguments: object) -> None:
            began = time.perf_counter()
            save(saved, *arguments)  # type: ignore[arg-type]
            self.seconds.append(time.perf_counter() - began)
            self.sizes.append(max(path.stat().st_size for path in saved.folder.iterdir()))

        Checkpoints.save = timed  # type: ignore[method-assign]


def timed(split: Split, asked: argparse.Namespace, folder: Path | None) -> tuple[Fit, float]:
    settings = Settings(epochs=asked.epochs, patience=None)
    began = time.perf_counter()
    fitted = train(
        split,
        eh.MF(dim=asked.dim),
        parse(asked.method).sampler,
        asked.seeds,
        settings,
        device="cpu",
        checkpoints=folder,
    )
    return fitted, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ratings", nargs="?")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--method", default="rns")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", help="where checkpoints go (default: the system's temporary folder)")
    asked = parser.parse_args()

    log = eh.Interactions.read(asked.ratings) if asked.ratings else simulate_log(6040, 3706, 1_000_000)
    split = log.split()
    print(f"{split!r}, mf d={asked.dim}, {asked.method}, {asked.seeds} seeds, {asked.epochs} epochs")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")

    plain, without = timed(split, asked, None)
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        saved, with_them = timed(split, asked, Path(folder) / "checkpoints")
    assert torch.equal(plain.model.user_vectors, saved.model.user_vectors), "checkpoints changed the model"
    spent = sum(watch.seconds)
    print(f"without checkpoints  {without:8.2f} s")
    print(f"with checkpoints     {with_them:8.2f} s")
    print(f"writing              {spent:8.2f} s = {spent / with_them:.2%} of the run")
    print(
        f"checkpoints          {len(watch.seconds):8d}   of {max(watch.sizes) / 1e6:.1f} MB, "
        f"{1000 * spent / len(watch.seconds):.0f} ms each"
    )


if __name__ == "__main__":
    main()
