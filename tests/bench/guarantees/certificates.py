"""Do certificates promise what is true, and after how many audits? Simulated labels and public sets.

    python -m tests.bench.guarantees.certificates [--projects 2000] [--runs 100] [--save]

Validity: each project promises a little less than its true error, and is looked at after every audit, up to 600 or half
of its labels. A false proof is one too many; at most 5 % + two standard errors may be. Half of the projects mend the
errors that are found, a quarter have classes with claims of their own, and a quarter auditors who take 1 % of the wrong
labels for right and 1 % of the right ones for wrong, with a second auditor as good as the first.

Audits: the mean number until 1 % is proven of 10,000 labels of which .5 % are wrong, beside the exact binomial
test of 90 % power (a fixed number of audits, one look at their end), and beside the same audit without a belief.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binom, hypergeom

from hitl.active.guarantees.audit import OPEN, PROVEN, Audit, Promise
from hitl.annotations import Floats
from tests.bench import results
from tests.bench.guarantees.projects import KINDS, Project, Wrong
from tests.bench.guarantees.public import SETS

SIZES, RATES = (200, 1_000, 10_000, 100_000), (0.001, 0.005, 0.02, 0.1)
CAP, MOST = 600, 6_000


def audited(audit: Audit, wrong: Wrong, cap: int, rng: np.random.Generator | None = None, err: float = 0.0) -> Audit:
    """Answer draws until the audit ends or `cap` are answered. Auditors err with chance `err`; a second confirms."""
    while audit.state == OPEN and len(audit.draws) < cap:
        drawn = audit.draw(min(max(3, len(audit.draws) // 20), cap - len(audit.draws)))
        said = np.array([wrong[draw.item] for draw in drawn])
        if rng is not None and err:
            said = said ^ (rng.random(len(said)) < err)
            second = np.array([wrong[draw.item] for draw in drawn]) ^ (rng.random(len(said)) < err)
            said &= second
        audit.record(said.tolist())
    return audit


def false_proof(seed: int, sizes: Sequence[int] = SIZES) -> tuple[str, bool]:
    """Audit one project whose promise is false. Return its kind, and whether it was proven when it was false."""
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    size, rate = int(rng.choice(sizes)), float(rng.choice(RATES))
    mended, grouped, erring = seed % 2 == 0, rng.random() < 0.25, rng.random() < 0.25
    doubt, wrong = KINDS[kind](size, rate, rng)
    if rng.random() < 0.25:
        doubt = np.full(size, 0.5)  # one stratum
    above = int(rng.integers(1, 11)) if mended else 1
    needed = max(int(wrong.sum()) - above + 1, 1)
    promise = Promise((needed - 0.5) / size, mended=mended)
    groups = rng.permutation(np.array(["a", "b", "b", "b"])[np.arange(size) % 4]).tolist() if grouped else None
    audit = audited(Audit(doubt, promise, str(seed), groups), wrong, min(CAP, size // 2), rng, 0.01 * erring)
    for claim in audit.claims:
        own = np.ones(size, bool) if not claim.name else np.array([name == claim.name for name in groups or ()])
        left = int(wrong[own].sum()) - (claim.wrong if mended else 0)
        if claim.state == PROVEN and left >= claim.needed and left > promise.error * claim.size:
            return kind, True
    return kind, False


def until_proven(doubt: Floats, wrong: Wrong, promise: Promise, seed: str, cap: int = MOST) -> int:
    """Return the number of audits until the promise is proven; `cap` if it is not."""
    audit = audited(Audit(doubt, promise, seed), wrong, cap)
    return len(audit.wrong) if audit.state == PROVEN else cap


def fixed_size(promised: float, true: float, size: int | None = None, power: float = 0.9, alpha: float = 0.05) -> int:
    """Return the least fixed number of audits at which the exact test of the promise has this power.

    The test is binomial, or hypergeometric if it knows the `size`.
    """
    for audits in range(10, 100_000):
        null = binom(audits, promised) if size is None else hypergeom(size, int(promised * size) + 1, audits)
        other = binom(audits, true) if size is None else hypergeom(size, int(true * size), audits)
        allowed = int(null.ppf(alpha))
        allowed -= int(null.cdf(allowed) > alpha)
        if allowed >= 0 and other.cdf(allowed) >= power:
            return audits
    return 100_000


def public(make: Callable[[], Project], runs: int) -> dict[str, float]:
    """Return means of the audits of one set, and the share of 4 x `runs` audits that prove one error too few."""
    doubt, wrong = make()
    size, rate = len(wrong), float(wrong.mean())
    row: dict[str, float] = {"labels": size, "wrong": rate}
    for name in ("without belief", "as is", "mended"):
        promise = Promise(1.5 * rate, mended=name == "mended")
        belief = np.full(size, 0.5) if name == "without belief" else doubt
        row[name] = float(np.mean([until_proven(belief, wrong, promise, str(run), size) for run in range(runs)]))
    row["of uniform"], row["mended of as is"] = row["as is"] / row["without belief"], row["mended"] / row["as is"]
    one_less = Promise((wrong.sum() - 0.5) / size, mended=False)
    cap = min(400, size // 2)
    row["false"] = float(
        np.mean([audited(Audit(doubt, one_less, f"f{run}"), wrong, cap).state == PROVEN for run in range(4 * runs)])
    )
    return row


def public_bars(page: results.Page, rows: Mapping[str, Mapping[str, float]], runs: int) -> None:
    """Tell the bars of the public sets."""
    photos = {name: row["of uniform"] for name, row in rows.items() if name.startswith("cifar10h")}
    crowds = {name: row["of uniform"] for name, row in rows.items() if name not in photos}
    small = {name: row["mended of as is"] for name, row in rows.items() if row["labels"] < 1_000}
    page.held(
        results.at_most_each("audits of those without a belief, photos", photos, 0.6),
        results.at_most_each("audits of those without a belief, crowds", crowds, 0.95),
        results.at_most_each("audits of mended labels of those as they are, below 1,000 items", small, 0.8),
        results.at_most_each(
            "share of false proofs",
            {name: row["false"] for name, row in rows.items()},
            0.05 + 2 * np.sqrt(0.0475 / (4 * runs)),
            ".4f",
        ),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, projects=2_000, runs=100)
    page, figures = results.Page(), dict[str, Any]()
    outcomes = [false_proof(seed) for seed in range(options.projects)]
    share = float(np.mean([bad for _, bad in outcomes]))
    allowed = 0.05 + 2 * np.sqrt(0.05 * 0.95 / options.projects)
    figures["false proofs"] = {"all": share} | {
        kind: float(np.mean([bad for other, bad in outcomes if other == kind])) for kind in KINDS
    }
    page.tell(f"false proofs, {options.projects} projects", *results.table({"share": figures["false proofs"]}))
    fixed, knowing = fixed_size(0.01, 0.005), fixed_size(0.01, 0.005, 10_000)
    figures["fixed"] = {"binomial": fixed, "hypergeometric": knowing}
    rows: dict[str, dict[str, float]] = {}
    for kind, make in KINDS.items():
        row = rows.setdefault(kind, {})
        for name in ("as is", "mended", "without belief"):
            promise = Promise(0.01, mended=name == "mended")
            taken = []
            for run in range(options.runs):
                doubt, wrong = make(10_000, 0.005, np.random.default_rng([run, 7]))
                doubt = np.full(len(doubt), 0.5) if name == "without belief" else doubt
                taken.append(until_proven(doubt, wrong, promise, str(run)))
            row |= {name: float(np.mean(taken)), f"{name}, median": float(np.median(taken))}
        row["of binomial"], row["of uniform"] = row["as is"] / fixed, row["as is"] / row["without belief"]
        page.tell(f"{kind}: {row}")
    page.tell("", "audits until 1 % is proven of 10,000 labels, .5 % wrong", *results.table(rows, 2))
    page.tell(f"exact test of 90 % power: binomial {fixed:,} audits, hypergeometric {knowing:,}")
    figures["audits"] = rows
    bars = {"good": 0.45, "moderate": 0.60, "over-confident": 0.60, "faint": 0.72, "useless": 0.72, "trap": 0.72}
    page.held(
        results.at_most("share of false proofs", share, allowed),
        *(
            results.at_most(f"audits, {kind}, of the exact binomial's", rows[kind]["of binomial"], bar)
            for kind, bar in bars.items()
        ),
        results.at_most_each(
            "audits of those without a belief", {kind: rows[kind]["of uniform"] for kind in rows}, 1.2
        ),
    )
    page.tell(
        "", "public sets by hitl's default: audits until 1.5 x the true error is proven, and false proofs of less"
    )
    figures["public"] = {name: public(make, options.runs) for name, make in SETS.items()}
    page.tell(*results.table(figures["public"], 3))
    public_bars(page, figures["public"], options.runs)
    if options.save:
        page.save("certificates", figures, "guarantees.certificates --save")


if __name__ == "__main__":
    main()
