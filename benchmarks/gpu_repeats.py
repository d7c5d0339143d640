"""Whether repeated and resumed runs on a GPU are equal to the bit, with and without `deterministic`.

python benchmarks/gpu_repeats.py
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import evenhand as eh
from evenhand.methods import parse
from evenhand.training.run import train


class HalfwayError(Exception):
    pass


def stop_halfway(done: int, most: int, record: Mapping[str, Any]) -> None:
    if done == most // 2:
        raise HalfwayError


def gap(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


split = eh.load_split("demo")
print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; largest difference of vectors, 0 = equal")
for encoder in (eh.MF(dim=64), eh.LightGCN(dim=64)):
    for method in ("rns", "fairstatic", "auc-ns:ecdf=64", "auc-ns"):
        for deterministic in (True, False):
            settings = eh.Settings(epochs=6, patience=None, deterministic=deterministic)

            def run(**how: Any) -> tuple[Tensor, Tensor]:
                return train(split, encoder, parse(method).sampler, 3, settings, device="cuda", **how).model.vectors  # noqa: B023

            whole, again = run(), run()
            with tempfile.TemporaryDirectory() as folder:
                checkpoints = Path(folder) / "checkpoints"
                try:
                    run(checkpoints=checkpoints, on_epoch=stop_halfway)
                except HalfwayError:
                    resumed = run(checkpoints=checkpoints, resume=True)
            kind = "deterministic" if deterministic else "fast"
            print(
                f"{type(encoder).__name__:9} {method:15} {kind:13} "
                f"repeated {gap(whole, again):.1e}  resumed {gap(whole, resumed):.1e}",
                flush=True,
            )
