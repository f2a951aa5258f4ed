"""Labels of a language model and of people, combined, against either alone at equal cost.

    python -m tests.bench.honesty.model_and_people [--seeds 5] [--workers 2] [--save]          reads HITL_DATA

pac_misinfo and pac_stance: labels of GPT-4o with its stated confidence, and the truth. People are simulated and drawn
for each seed: 20 of them, .7 to .9 right. A label of a person costs 1, one of the model PRICE. Budgets are per item:

    model     the model's label of every item, whatever the budget
    people    all is spent on people, asked by the policy, combined by the default
    both      the model labels every item, and the rest is spent on people, asked by the policy, combined by the default
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.active.replay.experiments import Simulation, run_trials
from hitl.active.replay.replay import Replay
from hitl.active.replay.simulated_annotators import Group
from hitl.annotations import Annotations
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.tables.read import read_table
from tests.bench import results
from tests.reference_data import folder

SETS = ("pac_misinfo", "pac_stance")
PRICE = 0.02
"""Price of a model's label in terms of a person's."""
BUDGETS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
PEOPLE = (Group("good", 20, accuracy=(0.7, 0.9)),)
STEPS = 30


def labels_of(name: str) -> tuple[Evidence, Evidence, float]:
    """Return the items with the model's probabilities, the same without, and the model's accuracy."""
    labels, truth = (read_table(folder(name) / f"{file}.csv").to_pydict() for file in ("model_labels", "truth"))
    right = dict(zip(truth["item"], truth["label"], strict=True))
    classes = tuple(sorted({*labels["label"], *right.values()}))
    code_n = np.array([classes.index(label) for label in labels["label"]])
    sure_n = np.clip(np.array(labels["confidence"], np.float64), 1 / len(classes) + 1e-6, 0.999)
    p_nj = np.repeat(((1 - sure_n) / (len(classes) - 1))[:, None], len(classes), axis=1)
    p_nj[np.arange(len(p_nj)), code_n] = sure_n
    nobody = np.zeros(0, np.int32)
    annotations = Annotations(nobody, nobody, nobody, tuple(labels["item"]), (), classes, classes)
    truth_n = np.array([classes.index(right[item]) for item in labels["item"]], np.int32)
    with_model = Evidence(annotations, {"model": p_nj}, truth=truth_n)
    return with_model, Evidence(annotations, truth=truth_n), float((code_n == truth_n).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=5, workers=2)
    page, kept, bars = results.Page(), dict[str, Any](), list[results.Bar]()
    for name in SETS:
        both, people, model = labels_of(name)
        size = both.annotations.n_items
        most = int(max(BUDGETS) * size)
        budget = Budget(-(-most // STEPS), 1.0, max_labels=2**31 - 1)
        rows: dict[str, dict[str, float]] = {}
        for who, evidence, spent in (("people", people, 0.0), ("both", both, PRICE)):
            replay = Replay(DefaultCombiner(), budget=budget, most_labels=most)
            tracks = run_trials(Simulation(evidence, PEOPLE), {who: replay}, options.seeds, workers=options.workers)
            for cost in BUDGETS:
                at = [np.interp((cost - spent) * size, track.labels, track.accuracy) for track in tracks[who]]
                row = rows.setdefault(f"{name}, cost {cost:g}", {"model": model})
                row |= {who: float(np.mean(at)), f"{who} sd": float(np.std(at, ddof=1))}
        kept |= rows
        for where, row in rows.items():
            best = max(row["model"], row["people"])
            bars.append((f"{where}: both above either alone", f"{row['both']:.3f} / {best:.3f}", row["both"] > best))
    page.tell(f"{options.seeds} crowds, a model's label costs {PRICE} of a person's", *results.table(kept, 3))
    page.held(*bars)
    if options.save:
        page.save("model_and_people", kept, f"honesty.model_and_people --seeds {options.seeds} --save")


if __name__ == "__main__":
    main()
