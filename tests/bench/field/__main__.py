"""Run every method of `methods/` on every public set, whole and thinned, without any truth; write the page of results.

    make results
    .venv/bench/bin/python -m tests.bench.field --sets rte wsd --methods "crowd-kit GLAD" "hitl default"

Each fit runs in a process of its own and is stopped after `--limit` seconds of processor time. Tables come in the order
of labels times classes; a method that was stopped is not tried on larger ones. Thinned tables have seed 0 of
`honesty.crowds`. Finished fits are in .venv/field.jsonl, so that a run that was interrupted goes on; a whole run with
--save removes that file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing import get_context
from multiprocessing.connection import Connection
from resource import RLIMIT_CPU, setrlimit
from signal import SIGKILL, SIGXCPU
from typing import Any

import numpy as np

from hitl.evidence import Evidence
from hitl.tables.read import read_table
from tests.bench import results
from tests.bench.bench_accuracy import GROUPS
from tests.bench.field import page
from tests.bench.field.methods import Fit, load
from tests.bench.honesty.crowds import REAL, WHOLE, Source, real
from tests.bench.honesty.scored import figures
from tests.reference_data import FOLDER

NOT_COUNTED = {"conll2003_ner_crowd", "trec2010_binary"}
"""Tokens of sentences, and a second coding of relevance_trec2010."""
THINNED, LARGE = ("1.2", "2", "3", WHOLE), 30_000
"""Labels per item, and the labels above which a set is not thinned."""
DONE = results.FOLDER.parents[1] / ".venv" / "field.jsonl"
Outcome = list[float | None] | str
"""Accuracy, log loss and ECE, the last two None without probabilities; or why there are none."""


def measured(fit: Fit, evidence: Evidence) -> Outcome:
    """Fit, and score on the items whose truth is recorded."""
    known, truth = evidence.known, evidence.truth
    assert truth is not None
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        np.random.seed(0)  # noqa: NPY002 (some packages draw from the global generator)
        try:
            found = np.asarray(fit(evidence.annotations))
        except Exception as error:  # whatever another package raises
            return f"{type(error).__name__}: {error}"[:100]
    if found.ndim == 1:
        return [round(float((found[known] == truth[known]).mean()), 6), None, None]
    if not np.isfinite(found[known]).all():
        return "gives probabilities that are not numbers"
    return [round(figure, 6) for figure in figures(found[known], truth[known])[:3]]


def repeated(method: str, name: str) -> Outcome:
    """Accuracy of crowd-kit's own labels on the file as it is, with repeated answers, as in its paper."""
    from tests.bench.field.methods.crowd_kit import aggregator

    answers, truth = (
        read_table(next((FOLDER / name).glob(f"{part}.csv*"))).to_pandas() for part in ("annotations", "truth")
    )
    frame = answers.rename(columns={"item": "task", "annotator": "worker"})
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        labels = aggregator(method.removeprefix("crowd-kit ")).fit_predict(frame)
    right = truth["label"].to_numpy() == labels.reindex(truth["item"]).to_numpy()
    return [round(float(right.mean()), 6), None, None]


def limited(seconds: float, work: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Work in a process that is stopped after so many seconds of processor time, or ten times as long on the clock."""

    def send(end: Connection) -> None:
        setrlimit(RLIMIT_CPU, (int(seconds), int(seconds)))
        end.send(work(*arguments))

    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=send, args=(there,))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(10 * seconds) else f"stopped after {10 * seconds:g} s on the clock"
    except EOFError:
        process.join()
        killed = process.exitcode in (-SIGKILL, -SIGXCPU)
        return f"stopped after {seconds:g} s of processor time" if killed else "ended without a result"
    finally:
        process.kill()
        process.join()


def main(arguments: Sequence[str] | None = None) -> None:
    every = [name for group in GROUPS for name in group if name not in NOT_COUNTED and (FOLDER / name).is_dir()]
    options = results.options(__doc__, arguments, sets=every, methods=(), limit=60.0)
    fits, versions = load()
    sources = {name: Source(REAL, name, name, 0) for name in options.sets}
    tables = []
    for name, source in sources.items():
        of_set = dict(source.tables())
        for labels in THINNED if len(of_set[WHOLE].annotations) <= LARGE else (WHOLE,):
            if labels in of_set:
                tables.append((name, labels, of_set[labels]))
    tables += [(name, page.PUBLISHED, real(name)) for name in page.JOSS_SETS if name in sources]
    tables.sort(key=lambda one: len(one[2].annotations) * one[2].annotations.n_classes)
    rows = [json.loads(line) for line in DONE.read_text().splitlines()] if DONE.exists() else []
    done = {tuple(row[:3]) for row in rows}
    stopped = {row[0] for row in rows if str(row[3]).startswith("stopped")}
    for name, labels, evidence in tables:
        for method in options.methods or fits:
            again = labels == page.PUBLISHED
            if (method, name, labels) in done or (again and not page.is_published(method, name)):
                continue
            outcome: Outcome = "stopped on a smaller table"
            if again or method not in stopped:
                work = (repeated, method, name) if again else (measured, fits[method], evidence)
                outcome = limited(options.limit, *work)
            if str(outcome).startswith("stopped"):
                stopped.add(method)
            rows.append([method, name, labels, outcome])
            print(*rows[-1], flush=True)
            with DONE.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    sizes = {}
    for name, labels, evidence in tables:
        if labels == WHOLE:
            a = evidence.annotations
            sizes[name] = [a.n_items, len(a), a.n_annotators, a.n_classes, int(evidence.known.sum())]
    asked = {(name, labels) for name, labels, _ in tables}
    chosen = [row for row in rows if row[0] in (options.methods or fits) and (row[1], row[2]) in asked]
    found = {"limit": options.limit, "versions": versions, "sets": sizes, "rows": chosen}
    if options.save:
        page.write(found)
        if not options.methods and options.sets == every:
            DONE.unlink()


if __name__ == "__main__":
    main()
