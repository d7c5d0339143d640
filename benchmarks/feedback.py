"""The feedback loop on `demo`, round by round, for several methods: does training make the rich richer?

.venv/bin/python benchmarks/feedback.py
"""

import evenhand as eh
from evenhand.data.datasets.load import demo_simulation
from evenhand.experiments.feedback_loop import feedback_loop

print("method    round    OHR@10  liked@10  exposure Gini  log Gini")
for method in ("rns", "dns", "auc-ns:ecdf=64"):
    for seed in (0, 1):
        for turn in feedback_loop(demo_simulation(), method, eh.MF(dim=64), n_rounds=5, seed=seed):
            print(
                f"{method:15} seed {seed}  {turn.number}  {turn.ohr:.4f}    {turn.precision:.4f}"
                f"    {turn.exposure_gini:.4f}     {turn.popularity_gini:.4f}"
            )
