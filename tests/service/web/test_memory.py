"""A run that is replaced by a later one is freed, whatever pages and suggestions were made of it.

`make trust` measures the process over 400 runs (`tests.bench.trust.soak`).
"""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.plan import Plan
from hitl.service.web.snapshot import Snapshot, Suggestions
from tests.service.web.served import run, served_crowd, serving, small

KINDS = (Snapshot, Suggestions, Evidence, Consensus, Plan)
PAGES = ("", "/items", "/items/item 3", "/annotators", "/annotators/ann", "/team", "/models", "/plan", "/runs")


def alive() -> Counter[type]:
    gc.collect()
    return Counter(type(one) for one in gc.get_objects() if type(one) in KINDS)


def test_earlier_runs_are_freed(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    annotations = tmp_path / "p" / "labels" / "annotations.csv"
    counts, before = [], alive()  # tests that ran before in this process may have left some
    with serving(config) as served:
        for number in range(6):
            with annotations.open("a") as file:
                file.write(f"item {9 + number % 3},new {number},cat,{1_800_000_000 + number}\n")
            run(config)
            served.refresh()
            for page in PAGES:
                served.html(f"/projects/p{page}")
            served.snapshot().suggestions.of("item 3")
            counts.append(alive())
    assert counts[0][Snapshot] == before[Snapshot] + 1
    grown = counts[5] - counts[1]  # over four runs
    assert max(grown.values(), default=0) <= 1, grown  # a thread may hold one
