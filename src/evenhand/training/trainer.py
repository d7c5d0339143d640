"""The training loop on one page: batch, sample, loss, step, evaluate, stop, checkpoint.

R replicas with seeds of their own train side by side. What one of them draws depends on its seed, the epoch, the
step and the place in the batch alone, so neither the other replicas nor a resumed run change anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.encoders import Vectors
from evenhand.metrics.catalogue import HISTORY
from evenhand.objectives import Scored
from evenhand.samplers.base import Batch, is_in, rows
from evenhand.training.adam import add_gradient
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.early_stopping import EarlyStopping
from evenhand.training.engines import engine_for
from evenhand.training.evaluation import Evaluator, SpreadEvaluator, best_final
from evenhand.training.state import TrainState
from evenhand.utils import keyed
from evenhand.utils.errors import DivergedError
from evenhand.utils.progress import OnEpoch, working_time
from evenhand.utils.stopping import StopSignal
from evenhand.utils.world import World


class Trainer(TrainState):
    """Trains R replicas: `run` goes over epochs, `run_epoch` over batches, `learn` takes one batch."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.engine = engine_for(self)
        """Runs the steps of an epoch: `learn`, or the same in compiled code."""

    def go_on_with(self, replicas: Sequence[int]) -> None:
        super().go_on_with(replicas)
        self.engine = engine_for(self)

    def run(
        self,
        stopping: EarlyStopping,
        evaluator: Evaluator | SpreadEvaluator | None,
        checkpoints: Checkpoints,
        *,
        resume: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> tuple[list[dict[str, Any]], float]:
        """Train until the epochs are up or no replica improves any more; history and seconds."""
        epochs, seconds = self.settings.epochs, self.settings.seconds or math.inf
        history, earlier = checkpoints.restore(self, stopping) if resume else ([], 0.0)
        began = working_time() - earlier

        def save() -> None:
            checkpoints.keep(self, stopping, history, working_time() - began)

        with StopSignal().listening() as stop, checkpoints.divergence_explained():
            asked = PauseVote(self.world, stop)
            while len(history) < epochs and not stopping.finished:
                epoch = len(history)
                if epoch and self.world.agree(working_time() - began > seconds):
                    break
                # Train; a long epoch pauses now and then for a checkpoint.
                while (log := self.run_epoch(epoch, pause=lambda: asked(checkpoints.due_within))) is None:
                    save()
                    if asked.to_stop:
                        raise checkpoints.stopped(epoch)
                # Evaluate, and keep what is best so far; who is done trains no more.
                running = stopping.running
                vectors, scored = best_final(self.finals(), evaluator, stopping.measure)
                if self.loss.trains_encoder or epoch + 1 == epochs:
                    stopping.see(epoch, scored, self.tensors(vectors))
                history.append(_record(epoch, log, scored, running, len(stopping.value), working_time() - began))
                if on_epoch:
                    on_epoch(epoch + 1, epochs, history[-1])
                if len(stopping.running) < len(running):
                    self.go_on_with(np.searchsorted(running, stopping.running).tolist())
                # Checkpoint; stop where somebody asks for it.
                if asked(checkpoints.due) or epoch + 1 == epochs or stopping.finished:
                    save()
                if asked.to_stop:
                    raise checkpoints.stopped(epoch + 1)
        return history, working_time() - began

    def run_epoch(self, epoch: int, pause: Callable[[], bool] = lambda: False) -> EpochLog | None:
        """Run the epoch from where it stands; None if `pause` asked to stop after one of its steps."""
        plan = self.engine.plan(epoch)
        self.loss.begin_epoch(epoch)
        if self.step == 0:
            self.engine.refresh(epoch)
        while self.step < self.steps:
            last = min(self.steps, self.step + self.engine.stride)
            self.tally += self.engine.run(plan, self.step, last)
            self.step = last
            if pause() and self.step < self.steps:
                self._check_finite(epoch)
                return None
        self._check_finite(epoch)
        self.add_to_average()
        loss, hot, false = (self.tally / self.steps).cpu().numpy()
        self.step = 0
        self.tally.zero_()
        sampler = [one.diagnostics() for one in self.samplers]
        return EpochLog(
            loss=loss,
            hot_share=hot,
            false_share=None if self.held_out is None else false,
            sampler={name: torch.cat([one[name] for one in sampler]).cpu().numpy() for name in sampler[0]},
        )

    def learn(self, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor, epoch: int) -> Tensor:
        """Batch, sample, loss, step for every replica, users and positives [R, B]: the oracle of the other engines.

        Returns loss, hot share and false share [3, R].
        """
        vectors = self.model()
        negatives = self.sample(vectors, users, positives, own, shared)
        self.loss.prepare(self.model)
        batch = Scored(
            replicas=slice(0, len(self.seeds)),
            users=users,
            positives=positives,
            negatives=negatives,
            user=rows(vectors.users, users),
            positive=rows(vectors.items, positives),
            items=vectors.items,
            log_q=self.samplers[0].log_probability(negatives) if self.shares else None,
        )
        loss = self.loss(batch) if users.is_cuda else torch.cat([self.loss(one) for one in batch.each()])
        loss.sum().backward()
        self.loss.finish()
        add_gradient(self.model, self.loss, self.l2, users, positives, negatives)
        adam, adam_of_loss = self.optimisers
        adam.step(self.rates(epoch), (users, torch.cat([positives, negatives.flatten(1)], dim=1)))
        adam_of_loss.step(self.rates(epoch))
        return torch.cat([loss.detach().double().unsqueeze(0), self.shares_of(users, negatives)])

    @torch.no_grad()
    def sample(self, vectors: Vectors, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor) -> Tensor:
        """Negatives int64 [R, B, n] for a batch, from the keys [R] of its own and of its shared draws.

        Where the objective has all positives share them, they are [R, 1, n].
        """
        if self.shares:
            return self.samplers[0].draw_shared(keyed.uniforms(shared, 1, self.negatives))
        seen = self.model.raw() if self.settings.sampler_scores == "raw" else vectors
        first = self.samplers[0]
        batch = Batch(
            users=users,
            positives=positives,
            uniforms=keyed.uniforms(own, users.shape[1], first.width(self.negatives)),
            shared=keyed.uniforms(shared, first.shared_width),
            user_vectors=seen.users.detach(),
            item_vectors=seen.items.detach(),
            n=self.negatives,
        )
        parts = batch.split(len(self.seeds) // len(self.samplers))
        return torch.cat([one.choose(part) for one, part in zip(self.samplers, parts, strict=True)])

    def shares_of(self, users: Tensor, negatives: Tensor) -> Tensor:
        """float64 [2, R]: the share of negatives that are hot, and that are held-out items of their user."""
        hot = self.hot[negatives].double().mean((1, 2))
        held_out = self.held_out_keys
        if held_out is None or not len(held_out):
            return torch.stack([hot, torch.zeros_like(hot)])
        if self.shares:  # one of them for each positive will do
            place = torch.arange(users.shape[1], device=users.device) % negatives.shape[-1]
            negatives = negatives[:, 0, place].unsqueeze(-1)
        false = is_in(held_out, users.unsqueeze(-1) * self.train.n_items + negatives)
        return torch.stack([hot, false.double().mean((1, 2))])

    def _check_finite(self, epoch: int) -> None:
        """Raise before a state is evaluated or saved that is no good.

        The loss was taken before the last step, so the vectors are looked at too: from their norms, which
        overflow where their products would.
        """
        found = [("loss", self.tally[0])]
        for table in (*self.model.parameters(), *self.loss.parameters()):
            found.append(("vectors", torch.linalg.vector_norm(table.detach().flatten(1), dim=1)))
        causes = [too_high(*numbers) for numbers in zip(self.rates(epoch), self.decay, strict=True)]
        problems = [
            f"the {what} became {float(values[r])} in epoch {epoch + 1}; {causes[r]}"
            for what, values in found
            for r in (~values.isfinite()).nonzero().flatten().tolist()
        ]
        for problem in self.world.gathered(problems[0] if problems else None):
            if problem is not None:
                raise DivergedError(problem)


@dataclass(frozen=True)
class EpochLog:
    """What one pass over the data did, one value per replica."""

    loss: np.ndarray
    hot_share: np.ndarray
    """Share of hot items among the sampled negatives."""
    false_share: np.ndarray | None
    """Share of false negatives among them: items of the user that were held out; None without such a part."""
    sampler: dict[str, np.ndarray]
    """What the sampler reports of itself, such as the α it follows."""


class PauseVote:
    """Whether to pause: somebody asked one of the processes to stop, or rank 0 wants a checkpoint. All agree."""

    def __init__(self, world: World, stop: StopSignal) -> None:
        self._world, self._stop, self.to_stop = world, stop, False

    def __call__(self, due: Callable[[], bool]) -> bool:
        said = torch.tensor([int(self._stop()), int(self._world.speaks and due())])
        stop, save = self._world.total(said).tolist()
        self.to_stop = self.to_stop or stop > 0
        return self.to_stop or save > 0


def _record(
    epoch: int, log: EpochLog, scored: list[Any], running: np.ndarray, replicas: int, seconds: float
) -> dict[str, Any]:
    """An epoch as a line of the history: a number per replica, None for those that train no more."""

    def each(values: Iterable[float]) -> list[float | None]:
        found = dict(zip(running.tolist(), map(float, values), strict=True))
        return [found.get(r) for r in range(replicas)]

    record: dict[str, Any] = {
        "epoch": epoch + 1,
        "seconds": round(seconds, 3),
        "loss": each(log.loss),
        "hot_share": each(log.hot_share),
    }
    if log.false_share is not None:
        record["false_share"] = each(log.false_share)
    record.update({name: each(value) for name, value in log.sampler.items()})
    if scored:
        record["metrics"] = {
            f"{name}@{k}": each(one[k].mean(name) for one in scored) for k in scored[0] for name in HISTORY
        }
    return record


_ABSURD_DECAY = 1e6
"""A weight decay above this overflows the squares in Adam, whatever the learning rate."""


def too_high(lr: float, decay: float) -> str:
    """Which setting to blame for numbers that ran away.

    >>> too_high(0.002, 1e30)
    'lower --weight-decay, as 1e+30 is probably too high'
    """
    name, value = ("--weight-decay", decay) if decay > _ABSURD_DECAY else ("--lr", lr)
    return f"lower {name}, as {value:g} is probably too high"
