"""Whether copied accounts are found, honest people are not, and copies cost the policy nothing.

    python -m tests.bench.honesty.copies [--seeds 20] [--parts found false policy] [--workers 2] [--save]

found    six people of a crowd have a second account each, which repeats 96 to 99.5 % of their labels on 200 items (a
         repeated label that fails becomes another one). Six crowds, and crowds in which copies are harder to tell.
false    crowds without copies, twenty each: independent annotators, items that mislead, two and five experts among
         people who are often wrong, people who overlook a class; and recorded crowds, whole.
policy   as `honesty.policy`: accuracy above as many labels spread evenly, at ten budgets, in crowds with copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.active.replay.replay import Replay, spread_evenly
from hitl.annotations import Annotations, Floats
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.analysis.copied_accounts import copied_accounts
from hitl.models.registry import combiner
from tests.bench import results
from tests.bench.bench_accuracy import GROUPS
from tests.bench.honesty.crowds import POOLED, real
from tests.bench.honesty.policy import BATCHES, COLUMNS, SHARES

PAIRS, SHARED, KEPT = 6, 200, (0.96, 0.995)

FOUND, FALSE = 10, 20
"""Crowds of a kind with and without copies."""

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """People of whom each is right as often in all classes, and whose errors lie unevenly.

    `accuracy`: the range; `labels` per item; `hard`: share of items that mislead `misled` of the people to one wrong
    class; `experts`: number of people who are right on 98 %; `sensitivity` of all people for the last class, if not 0.
    """

    classes: int
    accuracy: tuple[float, float]
    labels: int = 5
    items: int = 1000
    people: int = 20
    hard: float = 0.0
    misled: float = 0.6
    experts: int = 0
    sensitivity: float = 0.0

    def draw(self, rng: np.random.Generator) -> Evidence:
        """Draw a crowd and its truth."""
        truth_n = rng.integers(self.classes, size=self.items)
        right_k = rng.uniform(*self.accuracy, size=self.people)
        right_k[: self.experts] = 0.98
        error_kji = rng.dirichlet(np.ones(self.classes - 1), size=(self.people, self.classes))
        people_nm = np.argsort(rng.random((self.items, self.people)), axis=1)[:, : self.labels]
        item_m, annotator_m = np.repeat(np.arange(self.items), self.labels), people_nm.ravel()
        right_m = right_k[annotator_m]
        if self.sensitivity:
            right_m = np.where(truth_n[item_m] == self.classes - 1, self.sensitivity, right_m)
        up_to_mi = error_kji[annotator_m, truth_n[item_m]].cumsum(axis=1)
        error_m = np.minimum((rng.random((item_m.size, 1)) > up_to_mi).sum(axis=1), self.classes - 2)
        wrong_m = error_m + (error_m >= truth_n[item_m])
        label_m = np.where(rng.random(item_m.size) < right_m, truth_n[item_m], wrong_m)
        trap_n = (truth_n + rng.integers(1, self.classes, size=self.items)) % self.classes
        misled_m = (rng.random(self.items) < self.hard)[item_m] & (rng.random(item_m.size) < self.misled)
        label_m = np.where(misled_m, trap_n[item_m], label_m)
        codes = (code.astype(np.int32) for code in (item_m, annotator_m, label_m))
        names = tuple(range(self.items)), tuple(map(str, range(self.people)))
        classes = tuple(range(self.classes))
        return Evidence(Annotations(*codes, *names, classes, classes), truth=truth_n.astype(np.int32))


CROWDS: Mapping[str, Kind] = {
    "3 classes": Kind(3, (0.5, 0.85)),
    "4 classes": Kind(4, (0.45, 0.85)),
    "4 classes, three labels": Kind(4, (0.45, 0.85), labels=3, people=12),
    "4 classes, misleading items": Kind(4, (0.6, 0.9), hard=0.2),
    "8 classes": Kind(8, (0.4, 0.9)),
    "5 classes, ten labels": Kind(5, (0.4, 0.85), labels=10),
}
HARDER: Mapping[str, Kind] = {
    "2 classes": Kind(2, (0.55, 0.85)),
    "2 classes, misleading items": Kind(2, (0.6, 0.9), hard=0.2),
    "2 classes, accurate people": Kind(2, (0.8, 0.97)),
}
HONEST: Mapping[str, Kind] = {
    "independent, 2 classes": Kind(2, (0.5, 0.9)),
    "independent, 4 classes": Kind(4, (0.5, 0.9)),
    "independent, 15 labels": Kind(4, (0.5, 0.9), labels=15),
    "nearly always right": Kind(2, (0.9, 0.99)),
    "misleading items, 2 classes": Kind(2, (0.6, 0.9), hard=0.3, misled=0.8),
    "misleading items, 4 classes": Kind(4, (0.6, 0.9), hard=0.3, misled=0.8),
    "misleading items, 15 labels": Kind(2, (0.6, 0.95), labels=15, hard=0.3, misled=0.8),
    "two experts, 2 classes": Kind(2, (0.5, 0.7), experts=2),
    "two experts, 4 classes": Kind(4, (0.4, 0.6), labels=4, experts=2),
    "five experts, 2 classes": Kind(2, (0.5, 0.7), experts=5),
    "five experts, misleading items": Kind(4, (0.5, 0.7), labels=8, experts=5, hard=0.2),
    "overlooked class": Kind(2, (0.97, 0.99), people=40, sensitivity=0.5),
}


def with_copies(evidence: Evidence, rng: np.random.Generator, pairs: int = PAIRS, shared: int = SHARED) -> Evidence:
    """Add a copy of each of the first `pairs` people of a random order who have `shared` labels."""
    annotations = evidence.annotations
    size, options = annotations.n_annotators, annotations.n_options
    columns = [np.stack((annotations.item, annotations.annotator, annotations.label))]
    most = np.flatnonzero(annotations.labels_per_annotator >= shared)
    for copy, original in enumerate(rng.permutation(most)[:pairs].tolist()):
        rows = rng.permutation(np.flatnonzero(annotations.annotator == original))[:shared]
        label = annotations.label[rows]
        slips = rng.random(len(rows)) > rng.uniform(*KEPT)
        label = np.where(slips, (label + rng.integers(1, options, size=len(rows))) % options, label)
        columns.append(np.stack((annotations.item[rows], np.full(len(rows), size + copy), label)))
        name = f"copy of {annotations.annotators[original]}"
        annotations = replace(annotations, annotators=(*map(str, annotations.annotators), name))
    item, annotator, label = np.concatenate(columns, axis=1).astype(np.int32)
    return replace(
        evidence,
        annotations=replace(annotations, item=item, annotator=annotator, label=label, time=None, duration=None),
    )


def found_and_false(annotations: Annotations) -> tuple[int, int]:
    """Return the numbers of planted pairs that are found, and of other pairs."""
    names = annotations.annotators
    pairs = [(str(names[pair.copy]), str(names[pair.original])) for pair in copied_accounts(annotations).pairs]
    right = sum(f"copy of {a}" == b or f"copy of {b}" == a for a, b in pairs)
    return right, len(pairs) - right


def planted(kind: Kind, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    return found_and_false(with_copies(kind.draw(rng), rng).annotations)


def planted_in(name: str, seed: int) -> tuple[int, int]:
    return found_and_false(with_copies(real(name), np.random.default_rng(seed), shared=100).annotations)


def alarm(kind: Kind, seed: int) -> int:
    return len(copied_accounts(kind.draw(np.random.default_rng(seed)).annotations).pairs)


def gaps(kind: Kind, seed: int) -> Floats:
    """Return (10,) points above even spreading at each budget."""
    rng = np.random.default_rng(seed)
    evidence = with_copies(replace(kind, items=600, labels=8).draw(rng), rng)
    total, judge = len(evidence.annotations), combiner("default")
    budget = Budget(max(1, round(total / BATCHES)), 1.0, min_labels=0, max_labels=2**31 - 1)
    track = Replay(judge, budget=budget).run(evidence, seed)
    at = np.round(SHARES * total).astype(int)
    even = spread_evenly(evidence, judge, at.tolist(), np.random.default_rng(seed))
    points: Floats = 100 * (np.interp(at, track.labels, track.accuracy) - even)
    return points


def call(job: Callable[[], Any]) -> Any:
    return job()


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=20, parts=(), workers=2)
    parts = options.parts or ("found", "false", "policy")
    page, figures = results.Page(), dict[str, Any]()
    recorded = [name for group in GROUPS for name in group if name != POOLED]

    def computed(job: Callable[..., Any], cases: Mapping[str, Any], seeds: int) -> dict[str, list[Any]]:
        jobs = [partial(job, case, seed) for case in cases.values() for seed in range(seeds)]
        done = list(results.side_by_side(call, jobs, options.workers))
        return {name: done[n * seeds : (n + 1) * seeds] for n, name in enumerate(cases)}

    if "found" in parts:
        counts = computed(planted, {**CROWDS, **HARDER}, FOUND)
        page.tell(f"planted pairs found, of {PAIRS * FOUND} in {FOUND} crowds each, and other pairs")
        enough = {f"in {name}": name for name in recorded if _enough(name)}
        counts |= computed(planted_in, enough, FOUND)
        rows = {
            name: dict(zip(("found", "other"), np.sum(each, axis=0).tolist(), strict=True))
            for name, each in counts.items()
        }
        page.tell(*results.table(rows, 0))
        first = [sum(counts[name][0][n] for name in CROWDS) for n in (0, 1)]
        page.held(("36 of 36 planted pairs in six crowds", f"{first[0]} of 36, {first[1]} other", first == [36, 0]))
        figures["found"] = rows
    if "false" in parts:
        alarms = computed(alarm, HONEST, FALSE)
        flagged = {name: len(copied_accounts(real(name).annotations).pairs) for name in recorded}
        page.tell(f"crowds without copies in which a pair is reported, of {FALSE}")
        rows = {name: {"crowds": sum(map(bool, each))} for name, each in alarms.items()}
        page.tell(*results.table(rows, 0))
        page.tell(f"recorded crowds in which a pair is reported, of {len(recorded)}: {_names(flagged)}")
        worst = max(row["crowds"] for row in rows.values())
        page.held(("at most one false alarm in 20 crowds of each kind", f"{worst} at most", worst <= 1))
        figures["false"] = rows | {"recorded": flagged}
    if "policy" in parts:
        points = computed(gaps, {**CROWDS, "2 classes": HARDER["2 classes"]}, options.seeds)
        rows = {}
        for name, each in points.items():
            mean = np.mean(each, axis=0)
            error = np.std(each, axis=0, ddof=1)[mean.argmin()] / np.sqrt(len(each)) if len(each) > 1 else np.nan
            rows[name] = dict(zip(COLUMNS, mean, strict=True)) | {"worst": mean.min(), "+-": error}
        page.tell(f"points above even spreading with copies, {options.seeds} seeds, after this part of all labels")
        page.tell(*results.table(rows, 1))
        worst = min(row["worst"] for row in rows.values())
        page.held(("nowhere more than 1 point below even spreading", f"{worst:+.1f}", worst >= -1))
        figures["policy"] = {name: np.round(each, 3).tolist() for name, each in points.items()}
    if options.save:
        page.save("copies", figures, f"honesty.copies --seeds {options.seeds} --save")


def _enough(name: str) -> bool:
    """Return True if six people of a recorded crowd have a hundred labels."""
    return int((real(name).annotations.labels_per_annotator >= 100).sum()) >= PAIRS


def _names(flagged: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({pairs})" for name, pairs in flagged.items() if pairs) or "none"


if __name__ == "__main__":
    main()
