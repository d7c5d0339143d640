"""Adam with weight decay coupled into the gradient, over R replicas that never touch each other.

Each replica's slice is updated as an array of its own: torch rounds the tail of an array otherwise than its
body, so one update over all of them would let a replica's last digits depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """Dense updates of every row at every step, with the usual β = (0.9, 0.999) and ε = 1e-8."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.weight_decay = weight_decay
        self.mean = [torch.zeros_like(p) for p in self.parameters]
        self.square = [torch.zeros_like(p) for p in self.parameters]
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move along the gradients that `backward` left, and forget them; without one nothing moves."""
        for i, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            replicas = list(parameter.unbind(0))
            adam(
                replicas,
                list(gradient.unbind(0)),
                list(self.mean[i].unbind(0)),
                list(self.square[i].unbind(0)),
                max_exp_avg_sqs=[],
                # The fused update moves a counter for each replica; theirs are copies of the one that counts.
                state_steps=[self.steps[i].clone() for _ in replicas],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=lr,
                weight_decay=self.weight_decay,
                eps=1e-8,
                maximize=False,
            )
            self.steps[i] += 1
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for i, (mean, square, steps) in enumerate(zip(self.mean, self.square, self.steps, strict=True)):
            named |= {f"mean.{i}": mean, f"square.{i}": square, f"steps.{i}": steps}
        return named

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, mine in self.state().items():
            mine.copy_(state[name])
