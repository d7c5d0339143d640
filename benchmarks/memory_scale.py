"""The memory that training was expected to need beside what it took at its peak, on the CPU.

    python benchmarks/memory_scale.py [--users 300000] [--items 60000] [--seeds 2]

Simulated pairs, one epoch, one process for each case; what the process held before training does not count.
"""

import argparse
import json
import subprocess
import sys

CASES = {
    "mf, auc-ns, ranks from 64 draws": ("mf", "auc-ns:ecdf=64", {}),
    "mf, auc-ns, exact ranks": ("mf", "auc-ns:ecdf=exact", {}),
    "mf, rns, plain engine": ("mf", "rns", {"engine": "torch"}),
    "lightgcn, rns": ("lightgcn", "rns", {}),
}

TRAIN = """
import json, sys
import numpy as np
import numba, torch
from evenhand.data.interactions import Interactions
from evenhand.methods import parse
from evenhand.training.estimates import work_of
from evenhand.encoders import encoder_named
from evenhand.training.run import train
from evenhand.training.settings import Settings

def kilobytes(name):
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

n_users, n_items, seeds, encoder, method, settings = json.loads(sys.argv[1])
one, settings = parse(method), Settings(epochs=1, batch=16384, eval_users=1000, **settings)
generator = np.random.default_rng(0)
def fitted(n_users, n_items):
    place = (np.arange(15) + generator.random((n_users, 15))) / 15
    items = np.minimum(n_items * place**3, n_items - 1).astype(np.int32).ravel()
    log = Interactions.from_pairs(np.repeat(np.arange(n_users), 15), items, n_items=n_items)
    split = log.split(test=0.02, validation=0.1)
    work = work_of(split.train, split.validation, encoder_named(encoder), [one.sampler] * seeds,
                   settings.under("honest", encoder_named(encoder)), one.objective, torch.device("cpu"))
    before = kilobytes("VmRSS:")
    train(split, encoder_named(encoder), one.sampler, seeds, settings, objective=one.objective, device="cpu")
    return work.total, (kilobytes("VmHWM:") - before) * 1024
fitted(200, 100)  # compiles
print(json.dumps(fitted(n_users, n_items)))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=300_000)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    asked = parser.parse_args()
    for name in asked.cases:
        sizes = json.dumps([asked.users, asked.items, asked.seeds, *CASES[name]])
        done = subprocess.run([sys.executable, "-c", TRAIN, sizes], stdout=subprocess.PIPE, text=True, check=True)
        expected, taken = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {expected / 1e9:.2f} GB expected, {taken / 1e9:.2f} GB taken at the peak", flush=True)


if __name__ == "__main__":
    main()
