"""Imported once by the server that ranks are forked from: what they would import, and what numba prepares at first use.

Nothing with threads is run, which would not survive a fork.
"""

from importlib import import_module

from numba.core.registry import cpu_target

for name in (
    *("pandas", "pyarrow.csv", "pyarrow.parquet", "pytest", "run_cli", "torch.distributed.rendezvous"),
    *("evenhand.cli.train_command", "evenhand.models.topk", "evenhand.training.checkpoints"),
    *(f"evenhand.training.engines.{name}" for name in ("numba_engine", "sharded", "sharded_softmax", "sharded_torch")),
):
    import_module(name)
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
