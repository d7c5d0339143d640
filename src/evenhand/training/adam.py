"""Adam with weight decay coupled into the gradient, and L2 on the rows of a batch, over R replicas.

L2 is `λ/2B · Σ_b (‖p_u‖² + ‖q_i‖² + mean_j ‖q_j‖²)` on raw rows, before any propagation. A row is pulled as often as it
is drawn, and by as little as the batch is large: the balance between pull and push does not depend on the batch, on the
number of pairs or on how rare a row is. Several negatives of a positive count together as one; negatives that a batch
shares count as if every positive had drawn them. The loss that training reports leaves this term out.

Each replica's slice is updated as an array of its own: torch rounds the tail of an array otherwise than its
body, so one update over all of them would let a replica's last digits depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss


class Adam:
    """Adam with the usual β = (0.9, 0.999) and ε = 1e-8; each replica has its own rate and decay.

    Dense, every row moves at every step. Lazy, a row moves only with a batch that holds it: mean, square and
    decay of the others stay as they are, and each row's bias is corrected by its own count of moves. Where
    every row is in every batch the two are the same.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], decay: Sequence[float], *, lazy: bool = False) -> None:
        self.parameters = list(parameters)
        self.decay = tuple(decay)
        self.lazy = lazy
        self.mean = [torch.zeros_like(p) for p in self.parameters]
        self.square = [torch.zeros_like(p) for p in self.parameters]
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]
        self.clocks = [torch.zeros(p.shape[:2], dtype=torch.int32, device=p.device) for p in self.parameters if lazy]
        """int32 [R, rows] of each parameter: how often a row moved; none where every row always does."""

    @torch.no_grad()
    def step(self, lr: Sequence[float], touched: Sequence[Tensor] = ()) -> None:
        """Move along the gradients that `backward` left, and forget them; without one nothing moves.

        `touched` int64 [R, n] of each parameter are the rows that a lazy step moves, in any number.
        """
        for i, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            if self.lazy:
                self._move_touched(i, lr, touched[i])
            else:
                self._move_all(i, lr)
            self.steps[i] += 1
            parameter.grad = None

    def count(self, n: int) -> None:
        """Take note of n steps that an engine made by itself."""
        for steps in self.steps:
            steps += n

    def go_on_with(self, replicas: list[int]) -> None:
        """Forget all replicas but these, whose parameters have been cut down already."""
        self.decay = tuple(self.decay[r] for r in replicas)
        self.mean, self.square, self.clocks = (
            [one[replicas] for one in several] for several in (self.mean, self.square, self.clocks)
        )

    def _move_all(self, i: int, lr: Sequence[float]) -> None:
        numbers = list(zip(lr, self.decay, strict=True))
        alike = len(set(numbers)) == 1
        groups = [slice(0, len(numbers))] if alike else [slice(r, r + 1) for r in range(len(numbers))]
        gradient = self.parameters[i].grad
        assert gradient is not None
        for group in groups:
            replicas = list(self.parameters[i].unbind(0)[group])
            rate, decay = numbers[group.start]
            adam(
                replicas,
                list(gradient.unbind(0)[group]),
                list(self.mean[i].unbind(0)[group]),
                list(self.square[i].unbind(0)[group]),
                max_exp_avg_sqs=[],
                # The fused update moves a counter for each replica; theirs are copies of the one that counts.
                state_steps=[self.steps[i].clone() for _ in replicas],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=rate,
                weight_decay=decay,
                eps=1e-8,
                maximize=False,
            )

    def _move_touched(self, i: int, lr: Sequence[float], touched: Tensor) -> None:
        for r, (rate, decay) in enumerate(zip(lr, self.decay, strict=True)):
            # On a GPU a row that comes twice is moved twice to the same place: to sort them out, the host would wait.
            rows = touched[r] if touched.is_cuda else touched[r].unique()
            p, mean, square = (table[r, rows] for table in (self.parameters[i], self.mean[i], self.square[i]))
            gradient = self.parameters[i].grad
            assert gradient is not None
            g = gradient[r, rows] + decay * p
            mean += 0.1 * (g - mean)
            square += 0.001 * (g * g - square)
            clock = self.clocks[i][r, rows] + 1
            past = clock.double().unsqueeze(-1)
            size = rate / (1 - 0.9**past)
            spread = (square.double() / (1 - 0.999**past)).sqrt() + 1e-8
            self.parameters[i][r, rows] = (p.double() - size * mean / spread).float()
            self.mean[i][r, rows], self.square[i][r, rows] = mean, square
            self.clocks[i][r, rows] = clock

    def state(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for i, (mean, square, steps) in enumerate(zip(self.mean, self.square, self.steps, strict=True)):
            named |= {f"mean.{i}": mean, f"square.{i}": square, f"steps.{i}": steps}
        return named | {f"clock.{i}": clock for i, clock in enumerate(self.clocks)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, mine in self.state().items():
            mine.copy_(state[name])


def penalty(user: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """[r]: the term for λ = 1, from rows [r, B, d], [r, B, d] and [r, B or 1, n, d]."""
    lengths = user.square().sum(-1) + positive.square().sum(-1) + negative.square().sum(-1).mean(-1)
    return lengths.mean(1) / 2


@torch.no_grad()
def add_gradient(
    model: Tables, loss: Loss, l2: Sequence[float], users: Tensor, positives: Tensor, negatives: Tensor
) -> None:
    """Add the gradient of the term to those that `backward` left: λ times a row's weight times the row."""
    if not any(l2):
        return
    of_users = weights(users, model.users.shape[1])
    of_items = weights(positives, model.items.shape[1])
    of_items += weights(negatives.flatten(1), model.items.shape[1])
    for table, weight in ((model.users, of_users), *((t, of_items) for t in (model.items, *loss.item_tables()))):
        if table.grad is None:
            continue
        for r, strength in enumerate(l2):  # each replica by itself, so that none rounds as others make it
            if strength:
                table.grad[r].addcmul_(weight[r].unsqueeze(-1), table[r], value=strength)


def weights(drawn: Tensor, size: int) -> Tensor:
    """float32 [R, size]: the share of the draws [R, m] that fell on each row."""
    place = drawn + torch.arange(len(drawn), device=drawn.device).unsqueeze(1) * size
    counts = torch.zeros(len(drawn) * size, device=drawn.device)
    counts.index_add_(0, place.flatten(), torch.ones(place.numel(), device=drawn.device))
    return counts.view(-1, size) / drawn.shape[1]
