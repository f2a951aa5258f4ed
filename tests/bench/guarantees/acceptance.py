"""Is acceptance without people as right as promised, and how many items does it skip? Public sets with known truth.

    python -m tests.bench.guarantees.acceptance [--runs 1000] [--audits 300] [--save]          reads HITL_DATA

Each run orders equal beliefs and draws the audits by another seed, and accepts labels without people. A run fails if
more errors are left among them than promised. At most 5 % + two standard errors of the runs may. pac_misinfo,
pac_stance and pac_imagenet are labels of one model with its stated confidence. On CIFAR-10H hitl's default combines the
models, and one label per image by an anonymous pool of people (ten draws of them), without any truth.

    skipped    mean share of the items that are accepted
    oracle     share that could be accepted if the truth were known
    failed     share of the runs in which more errors are left than promised
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hitl.active.guarantees.acceptance import Acceptance
from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.tables.read import read_table
from tests.bench import results
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth, folder

Labels = tuple[Floats, npt.NDArray[np.bool_]]
"""(N,) believed chances that labels are right, and whether they are wrong."""

NETWORKS = ("resnet-110", "resnet-low-acc", "preresnet-110")
ERRORS = {"pac_misinfo": (0.05,), "pac_stance": (0.05,), "pac_imagenet": (0.05,)}
ERRORS |= {f"cifar10h, {who}": (0.01, 0.02, 0.05) for who in ("one network", "three networks")}
ERRORS |= {f"cifar10h, {who} and a label": (0.01, 0.02) for who in ("one network", "three networks")}

DRAWS = 10
"""Number of draws of human labels that the runs share."""

LEAST = {("pac_misinfo", 0.05): 0.26, ("pac_stance", 0.05): 0.33, ("pac_imagenet", 0.05): 0.57}
LEAST |= {("cifar10h, one network", 0.02): 0.80, ("cifar10h, one network and a label", 0.01): 0.78}
LEAST |= {("cifar10h, three networks and a label", 0.01): 0.78}
"""(set, promised error) -> share that must be skipped at 300 audits."""


def stated(name: str) -> Labels:
    """Read the labels of a model with its stated confidence."""
    labels, truth = (read_table(folder(name) / f"{file}.csv").to_pydict() for file in ("model_labels", "truth"))
    right = dict(zip(truth["item"], truth["label"], strict=True))
    wrong = [label != right[item] for item, label in zip(labels["item"], labels["label"], strict=True)]
    return np.array(labels["confidence"], np.float64), np.array(wrong)


def combined(networks: Sequence[str], draw: int | None) -> Labels:
    """Combine networks, and a drawn human label per image unless `draw` is None, without the truth."""
    truth, classes = cifar10h_truth()
    people = anonymous(np.array([row[0] for row in cifar10h_labels(draw or 0)]), classes)
    evidence = Evidence(people, {network: cifar10h_probabilities(network) for network in networks})
    if draw is None:
        evidence = replace(evidence, annotations=people.select(np.zeros(len(people), bool)))
    probabilities = DefaultCombiner().fit(evidence).probabilities
    return probabilities.max(axis=1), probabilities.argmax(axis=1) != truth


def labels_of(name: str) -> list[Labels]:
    """Return the labels of a set, several if they are drawn."""
    if name.startswith("pac_"):
        return [stated(name)]
    networks = NETWORKS[: 1 if "one" in name else None]
    return [combined(networks, draw) for draw in (range(DRAWS) if "label" in name else (None,))]


def oracle(confidence: Floats, wrong: npt.NDArray[np.bool_], error: float) -> float:
    """Return the share of the longest beginning of the order with at most the promised errors; ties as they come."""
    order = np.argsort(-confidence, kind="stable")
    return float((np.cumsum(wrong[order]) <= error * len(wrong) + 1e-9).mean())


def one_run(
    confidence: Floats, wrong: npt.NDArray[np.bool_], error: float, audits: int, seed: int
) -> tuple[float, bool]:
    """Accept labels once. Return the share of the items that skip, and whether more errors are left than promised."""
    acceptance = Acceptance(confidence, error, seed=str(seed))
    audited = acceptance.draw(audits)
    accepted = acceptance.accept(audited, wrong[audited])
    left = int(wrong[accepted.items].sum()) - accepted.found
    return len(accepted.items) / len(wrong), left > error * len(wrong) + 1e-9


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, runs=1_000, audits=300)
    page, rows, bars = results.Page(), dict[str, dict[str, float]](), list[results.Bar]()
    for name, errors in ERRORS.items():
        sets = labels_of(name)
        for error in errors:
            found = [one_run(*sets[seed % len(sets)], error, options.audits, seed) for seed in range(options.runs)]
            skipped, failed = (float(np.mean(column)) for column in zip(*found, strict=True))
            rows[f"{name}, {error:.0%}"] = {
                "wrong": float(np.mean([wrong for _, wrong in sets])),
                "skipped": skipped,
                "oracle": float(np.mean([oracle(*labels, error) for labels in sets])),
                "failed": failed,
            }
            print(f"{name}, {error:.0%}: skipped {skipped:.3f}, failed {failed:.4f}", flush=True)
            if least := LEAST.get((name, error)):
                bars.append(results.at_least(f"skipped, {name}, {error:.0%}", skipped, least))
    page.tell("", f"{options.audits} audits, {options.runs:,} runs", *results.table(rows))
    allowed = round(0.05 + 2 * np.sqrt(0.05 * 0.95 / options.runs), 4)
    failed_rows = {name: row["failed"] for name, row in rows.items()}
    page.held(results.at_most_each("share of failed runs", failed_rows, allowed, ".4f"), *bars)
    if options.save:
        page.save("acceptance", rows, "guarantees.acceptance --save")


if __name__ == "__main__":
    main()
