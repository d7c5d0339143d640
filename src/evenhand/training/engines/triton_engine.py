"""The GPU engine for MF with BPR: two kernels a step, for all replicas at once and without the host in between.

The steps of an epoch are recorded once as a CUDA graph and replayed; where in the epoch a replay stands is
kept on the device. Given the same keys it draws what the plain engine draws, and agrees with it up to
float32 rounding. With exact sums a run repeats to the bit, whatever trains beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evenhand.training.engines import fused_tables as tables
from evenhand.training.engines.base import Engine, Plan, recording
from evenhand.training.engines.fused_tables import (
    LAST,
    LOSS_UNIT,
    Distribution,
    Ranks,
    Rule,
    Shape,
    Table,
    padded,
    power,
)
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.training.adam import Adam
    from evenhand.training.trainer import Trainer

_GRAPH_STEPS = 32
"""Steps that are recorded, and replayed, together."""
_CELLS, _ROWS, _STRIDE = 1024, 16, 1024
"""Numbers a program moves, rows it moves, sums it adds at a time."""


class Kernels:
    """Kernels that run one after the other, over and over; on a GPU recorded, so that the host launches many as one."""

    def __init__(self, launches: Sequence[Callable[[], None]], on_gpu: bool, at_once: int) -> None:
        self._launches, self._on_gpu, self._sizes = launches, on_gpu, (at_once, 1)
        self._graphs: dict[int, Any] = {}

    def run(self, n: int) -> None:
        """Run all of them n times. The first time they are compiled, which must not happen while they are recorded."""
        if n and not self._graphs:
            self._launch(1)
            n -= 1
            if self._on_gpu:
                self._graphs = {size: self._recorded(size) for size in self._sizes}
        while n:
            some = next(size for size in self._sizes if size <= n)
            self._graphs[some].replay() if self._graphs else self._launch(some)
            n -= some

    def _launch(self, n: int) -> None:
        for _ in range(n):
            for launch in self._launches:
                launch()

    def _recorded(self, n: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with recording(graph):
            self._launch(n)
        return graph


class FusedSteps:
    """Steps of MF + BPR for R replicas; `begin_epoch` says what is random, `run` makes some of the steps."""

    def __init__(
        self,
        users: Table,
        items: Table,
        pairs: tuple[Tensor, Tensor],
        distribution: Distribution,
        rule: Rule,
        *,
        batch: int,
        steps: int,
        decay: Sequence[float] | Tensor,
        l2: Sequence[float] | Tensor,
        hot: Tensor,
        held_out: Tensor | None = None,
        taken: int = 0,
        exact_sums: bool = True,
        shape: Shape | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """
        `pairs` are user and item [N] of every positive (int32 spares a copy); `steps` is the number of
        batches in an epoch; `decay` [R] is the weight decay, `l2` [R] that on the rows of a batch; `hot` is
        bool [n_items]; `held_out` are the ascending keys user * n_items + item of the pairs that make a
        negative a false one; `taken` is how many steps Adam has made before. `exact_sums` adds gradients up as
        64-bit integers. With `ranks`, users and pairs are those of this process alone.
        """
        from evenhand.training.engines import triton_adam, triton_kernels

        self._kernels, self._adam = triton_kernels, triton_adam
        if len(pairs[0]) >= 2**31:
            raise InputError(f"{len(pairs[0]):,} pairs are too many for the fused steps; use engine 'torch'.")
        assert all(one.is_contiguous() for table in (users, items) for one in table if one is not None)
        self.device = users.rows.device
        self.replicas, self.n_users, self.dim = users.rows.shape
        self.n_items = items.rows.shape[1]
        self.batch, self.steps, self.n_pairs = batch, steps, len(pairs[0])
        self.lazy = users.clock is not None
        self._users, self._items = users, items
        self._pairs = tuple(side.to(torch.int32) for side in pairs)
        self._exact, self._ranks = exact_sums, ranks
        self._of_all, self._lanes = (ranks.pairs, ranks.lanes) if ranks else (self.n_pairs, batch)
        self._wide = self._lanes * (ranks.size if ranks else 1)
        self._message = tables.message_length(self.dim)
        self._shape = shape or tables.shape_for(self.dim, rule)
        self._nothing = torch.zeros(1, dtype=torch.int64, device=self.device)

        def new(*size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=self.device)

        sums = torch.int64 if exact_sums else torch.float32
        self._gradients = [new(*table.rows.shape, dtype=sums) for table in (users, items)]
        self._marks = [new(*t.rows.shape[:2], dtype=torch.int32) for t in (users, items) if self.lazy]
        self._order = new(self.replicas, self.n_pairs, dtype=torch.int32)
        self._own = new(self.replicas, steps, dtype=torch.int64)
        self._shared = new(self.replicas, steps, dtype=torch.int64)
        self._rates = new(self.replicas, dtype=torch.float32)
        self._decay, self._l2 = (torch.as_tensor(x, dtype=torch.float32).to(self.device) for x in (decay, l2))
        self._step_at, self._taken = new(1, dtype=torch.int64), new(1, dtype=torch.int64)
        self._taken.fill_(taken)
        self._unbias = [tables.corrections(beta, root).to(self.device) for beta, root in ((0.9, 1), (0.999, 0.5))]
        self._blocks = -(-self._lanes // self._shape.positives)
        self.touched = new(self.replicas, 3, self._wide, dtype=torch.int32).fill_(-1)
        """int32 [R, 3, batch]: users, positives and negatives of the last step; -1 beyond its end."""
        self._draws, self._ranks_all = rule.draws, rule.kind == "auc" and not rule.draws
        self._width = padded(self.dim) if rule.kind == "auc" else power(self.dim)
        ranked = (rule.draws or self.n_items) if rule.kind == "auc" else 1
        self._pitch = -(-ranked // self._shape.chunk) * self._shape.chunk
        deep = self.replicas if rule.kind == "auc" else 1
        self._across = new(deep, self._width, self._pitch, dtype=torch.float32)
        """The vectors that ranks are counted among, side by side: item i of replica r is [r, :, i]."""
        self._drawn = new(deep, self._pitch, dtype=torch.int32).fill_(-1)
        self._parts = new(self.replicas, 4, self._blocks, dtype=torch.float32)
        self._tally = new(3, self.replicas, dtype=torch.float64)
        self._tallied = 0 if ranks else self._blocks  # over processes `add_items` adds up
        self._at = 0
        self._cuts = self._places = self._said = self._heard = None
        if ranks:
            self._cuts = new(self.replicas, steps + 1, dtype=torch.int64)
            self._places = new(self.replicas, self.n_pairs, dtype=torch.int32)
            self._said = new(self.replicas, self._lanes, self._message, dtype=torch.float32)
            self._heard = new(ranks.size, *self._said.shape, dtype=torch.float32) if ranks.gather else self._said
        self._sums = new(2, 3, self.replicas, dtype=torch.int64)
        first = [self._first_launch(distribution, rule, hot, held_out)]
        if rule.draws:
            first.insert(0, self._shared_launch())
        second = [self._touched_launch() if self.lazy else self._dense_launch()]
        if ranks:
            second.insert(0, self._items_launch(hot))
        on_gpu = self.device.type == "cuda"
        self._halves = (
            [Kernels(half, on_gpu, at_once=1) for half in (first, second)]
            if ranks and ranks.gather
            else [Kernels([*first, *second], on_gpu, at_once=_GRAPH_STEPS)]
        )
        """The kernels of a step; in two halves where other processes are heard in between."""

    def begin_epoch(
        self,
        order: Tensor,
        own: Tensor,
        shared: Tensor,
        rates: Sequence[float] | Tensor,
        places: Tensor | None = None,
        cuts: Tensor | None = None,
    ) -> None:
        """Take an epoch's order int [R, N], keys int64 [R, steps] and learning rates [R].

        Over several processes also where in the epoch the pairs stand [R, N], and where in `order` each step
        begins [R, steps + 1].
        """
        self._order.copy_(order)
        if self._places is not None and self._cuts is not None and places is not None and cuts is not None:
            self._places.copy_(places % self.batch)
            self._cuts.copy_(cuts)
        self._own.copy_(own)
        self._shared.copy_(shared)
        self._rates.copy_(torch.as_tensor(rates, dtype=torch.float32))
        if self._ranks_all:
            self._across[:, : self.dim, : self.n_items] = self._items.rows.transpose(1, 2)

    def restart(self, taken: int) -> None:
        """Go on as if Adam had made `taken` steps; tables that were changed take effect in the next epoch."""
        self._taken.fill_(taken)
        for marks in self._marks:
            marks.zero_()

    def run(self, first: int, last: int) -> Tensor:
        """Make the steps first…last-1; float64 [3, R]: sums over them of loss, hot share and false share.

        Nothing waits for the device, except the first time, when the kernels are compiled.
        """
        if first != self._at:
            self._step_at.fill_(first)
        self._at = last
        self._tally.zero_()
        if len(self._halves) == 1:
            self._halves[0].run(last - first)
        else:
            for _ in range(first, last):
                self._halves[0].run(1)
                self._hear()
                self._halves[1].run(1)
        return self._tally.clone() if self._ranks is None else self._counted(last)

    def _hear(self) -> None:
        assert self._ranks is not None
        if self._ranks.gather is not None and self._said is not None and self._heard is not None:
            self._ranks.gather(self._said, self._heard)

    def _counted(self, last: int) -> Tensor:
        """The tally of all processes, from sums in whole numbers."""
        whole, rest = self._sums.double()
        self._sums.zero_()
        scale = torch.tensor([1 / LOSS_UNIT, 1, 1], dtype=torch.float64, device=self.device).unsqueeze(1)
        return scale * (whole / self.batch + rest / max(1, self._of_all - (last - 1) * self.batch))

    def _first_launch(
        self, distribution: Distribution, rule: Rule, hot: Tensor, held_out: Tensor | None
    ) -> Callable[[], None]:
        none, shape = self._nothing, self._shape
        kinds = ("uniform", "weighted", "grouped"), ("fixed", "hardest", "auc")
        groups = 1 if distribution.choice is None else distribution.choice.shape[1]
        held = held_out is not None and len(held_out) > 0
        tensors = [
            *(self._users.rows, self._items.rows, *self._gradients, self._order, *self._pairs),
            *(self._own, self._step_at, self._taken, self._across, self._drawn),
            *(distribution.indptr, distribution.items, tables.gaps(distribution)),
            *distribution[3:],  # mass, before_item, before_pair, choice, begin, left, item_at
            *(rule.alpha, rule.gamma, rule.prior),
            *(hot.view(torch.uint8), held_out if held else None, self._rows_of(held_out) if held else None),
            *(self._l2, self.touched, self._parts, self._cuts, self._places, self._said),
        ]
        tensors = [none if tensor is None else tensor.contiguous() for tensor in tensors]
        numbers = (self.n_pairs, self.n_users, self.n_items, self.dim, self.steps, self.batch)
        shares = (self._of_all, self._lanes, self._wide, self._message)
        kernel = self._kernels.learn[(self._blocks, self.replicas)]

        def launch() -> None:
            kernel(
                *tensors, *numbers, groups, self._blocks, self._pitch, *shares,
                DRAWN=kinds[0].index(distribution.kind), CHOICE=kinds[1].index(rule.kind), M=rule.candidates,
                K=rule.probes, DRAWS=rule.draws, GROUPS=power(groups), EXACT=self._exact, HELD=held,
                SPREAD=self._ranks is not None,
                BB=shape.positives, D=self._width, W=power(rule.candidates + 2 * rule.probes),
                PART=shape.part, CHUNK=shape.chunk, num_warps=shape.warps, maxnreg=shape.registers,
            )  # fmt: skip

        return launch

    def _shared_launch(self) -> Callable[[], None]:
        some = 16
        kernel = self._kernels.gather_shared[(-(-self._draws // some), self.replicas)]
        tensors = (self._items.rows, self._shared, self._step_at, self._across, self._drawn)
        numbers = (self.n_items, self.dim, self.steps, self._pitch)

        def launch() -> None:
            kernel(*tensors, *numbers, DRAWS=self._draws, D=self._width, SOME=some)

        return launch

    def _items_launch(self, hot: Tensor) -> Callable[[], None]:
        positives = 16
        kernel = self._kernels.add_items[(-(-self._wide // positives), self.replicas)]
        tensors = (self._items.rows, self._gradients[1], self._heard, self._step_at, self._l2, hot.view(torch.uint8))
        numbers = (self.n_items, self.dim, self.batch, self._of_all, self._lanes, self._wide, self._message)

        def launch() -> None:
            kernel(*tensors, self.touched, self._sums, *numbers, LOSS_UNIT=LOSS_UNIT, D=power(self.dim), BB=positives)

        return launch

    def _rows_of(self, keys: Tensor | None) -> Tensor:
        """int64 [n_users + 1]: where each user's keys begin."""
        assert keys is not None
        firsts = torch.arange(self.n_users + 1, device=self.device) * self.n_items
        return torch.searchsorted(keys, firsts)

    def _sides(self) -> list[Tensor]:
        pieces = zip((self._users, self._items), self._gradients, strict=True)
        return [t for table, gradient in pieces for t in (table.rows, table.mean, table.square, gradient)]

    def _ends(self) -> tuple[Any, ...]:
        steady = (self._rates, self._decay, *self._unbias, LAST)
        return (*steady, self._taken, self._step_at, self._parts, self._tally)

    def _twice(self) -> dict[str, int]:
        """Where ranks are among all items, Adam also keeps `_across` up to date."""
        return {"EXACT": self._exact, "TWICE": self._ranks_all, "D": self._width, "STRIDE": _STRIDE}

    def _dense_launch(self) -> Callable[[], None]:
        rows = max(1, _CELLS // self._width)
        programs = [-(-n // rows) for n in (self.n_users, self.n_items)]
        kernel = self._adam.move_all[(sum(programs) + 1, self.replicas)]
        numbers = (self.n_users, self.n_items, *programs, self._tallied, self.dim, self._across, self._pitch)
        sizes = self._twice() | {"ROWS": rows}

        def launch() -> None:
            kernel(*self._sides(), *self._ends(), *numbers, **sizes)

        return launch

    def _touched_launch(self) -> Callable[[], None]:
        programs = -(-self._wide // _ROWS)
        kernel = self._adam.move_touched[(3 * programs + 1, self.replicas)]
        clocks = (self._users.clock, self._marks[0], self._items.clock, self._marks[1], self.touched)
        sizes_of = (self.n_users, self.n_items, self._wide, programs, self._tallied, self.dim)
        sizes = self._twice() | {"ROWS": _ROWS}

        def launch() -> None:
            kernel(*self._sides(), *clocks, *self._ends(), *sizes_of, self._across, self._pitch, **sizes)

        return launch


class TritonEngine(Engine):
    """The trainer's tables and samplers, handed to the fused steps."""

    name = "triton"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.stride = 512
        self._adam: Adam | None = None
        self._plan: Plan | None = None
        self._build()

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        adam = self.trainer.optimisers[0]
        if adam is not self._adam:
            self._build()
        if plan is not self._plan:
            self._plan = plan
            self._steps.restart(int(adam.steps[0]))
            self._steps.begin_epoch(plan.order, plan.own, plan.shared, self.trainer.rates(plan.epoch))
        adam.count(last - first)
        return self._steps.run(first, last)

    def _build(self) -> None:
        trainer = self.trainer
        self._adam = adam = trainer.optimisers[0]
        clocks = adam.clocks if adam.lazy else (None, None)
        parameters = (table.detach() for table in adam.parameters)
        users, items = map(Table, parameters, adam.mean, adam.square, clocks)
        self._steps = fused_steps(trainer, users, items)


def fused_steps(trainer: Trainer, users: Table, items: Table, ranks: Ranks | None = None) -> FusedSteps:
    """The steps of a trainer on these tables."""
    return FusedSteps(
        users,
        items,
        (trainer.users, trainer.items),
        *tables.distribution_and_rule(trainer.samplers[0], trainer.train),
        batch=trainer.settings.positives,
        steps=trainer.steps,
        decay=trainer.optimisers[0].decay,
        l2=trainer.l2,
        hot=trainer.hot,
        held_out=trainer.held_out_keys,
        ranks=ranks,
    )
