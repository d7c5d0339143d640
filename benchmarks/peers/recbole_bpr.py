"""Epochs of RecBole's BPR with uniform or dynamic negatives, on request. Run by the driver, not by hand.

The epoch is the one of RecBole's own trainer and loader, without its progress bar and without evaluation.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")

import numpy as np
import torch
from answers import filled, outlet, serve


def write_atomic(folder: Path, pairs: dict[str, np.ndarray]) -> None:
    """The pairs as RecBole reads them; validation is the test part, and neither is ever looked at."""
    (folder / "pairs").mkdir()
    for name, part in (("train", "train"), ("valid", "test"), ("test", "test")):
        rows = np.stack([pairs[f"{part}_users"], pairs[f"{part}_items"]], 1)
        lines = ["user_id:token\titem_id:token", *(f"{user}\t{item}" for user, item in rows)]
        (folder / "pairs" / f"pairs.{name}.inter").write_text("\n".join(lines) + "\n")


def trainer(asked: dict, folder: Path):
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import BPR
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    dynamic = asked["kind"] == "dynamic"
    settings = {
        "data_path": str(folder),
        "benchmark_filename": ["train", "valid", "test"],
        "load_col": {"inter": ["user_id", "item_id"]},
        "embedding_size": asked["dim"],
        "train_batch_size": asked["batch"],
        "learner": "adam",
        "learning_rate": 0.001,
        "train_neg_sample_args": {
            "distribution": "uniform",
            "sample_num": 1,
            "alpha": 1.0,
            "dynamic": dynamic,
            "candidate_num": asked["candidates"] if dynamic else 0,
        },
        "use_gpu": False,
        "worker": 0,
        "show_progress": False,
        "checkpoint_dir": str(folder / "saved"),
        "seed": 0,
    }
    config = Config(model="BPR", dataset="pairs", config_dict=settings)
    init_seed(0, True)
    data = create_dataset(config)
    train, _, _ = data_preparation(config, data)
    model = BPR(config, train.dataset).to(config["device"])
    train.get_model(model)
    return Trainer(config, model), train


def main() -> None:
    say = outlet()
    asked = json.loads(sys.argv[1])
    sys.argv = sys.argv[:1]  # RecBole reads the command line too
    torch.set_num_threads(asked["threads"])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it leaves logs where it stands
        write_atomic(Path(folder), dict(np.load(asked["pairs"])))
        running, train = trainer(asked, Path(folder))
        done = iter(range(10**9))
        versions = {name: importlib.metadata.version(name) for name in ("recbole", "torch", "numpy")}
        serve(say, versions, lambda: filled(lambda: running._train_epoch(train, next(done)), asked["at_least"]))


if __name__ == "__main__":
    main()
