"""`fit`: a split and a name in, a trained model out, be it a method or a baseline."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.baselines import BASELINES
from evenhand.baselines.models import fit_baseline_model
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, encoder_named
from evenhand.methods import trained_method
from evenhand.models.base import Model
from evenhand.samplers.base import Sampler
from evenhand.training.run import train
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.progress import task


def fit(
    split: Split,
    encoder: str | Encoder = "mf",
    method: str | Sampler | Sequence[Sampler] = "auc-ns",
    seeds: int | Sequence[int] = 3,
    settings: Settings | None = None,
    *,
    protocol: ProtocolName = "honest",
    device: str = "auto",
    hot: str | None = None,
    progress: bool = True,
) -> Model:
    """Train R seeds side by side and return the model; its `recommend` uses the best seed on validation.

    `encoder` and `method` are names ("mf", "lightgcn"; "auc-ns", "dns:candidates=2") or objects. The name of
    a baseline ("ease", "als:factors=32") gives its model; encoder and settings do not concern it.
    """
    if isinstance(method, str) and method.partition(":")[0] in BASELINES:
        return fit_baseline_model(split, method, seeds, protocol=protocol, device=device, hot=hot)[0]
    one = trained_method(method if isinstance(method, (str, Sampler)) else method[0])
    with task("training", show=progress) as on_epoch:
        return train(
            split,
            encoder_named(encoder),
            one.sampler if isinstance(method, (str, Sampler)) else method,
            seeds,
            settings,
            objective=one.objective,
            label=one.label,
            protocol=protocol,
            device=device,
            hot=hot,
            on_epoch=on_epoch,
        ).model
