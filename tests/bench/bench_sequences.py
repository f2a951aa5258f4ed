"""Chains of true classes: how near to the oracle, spans of named entities, and what the passes cost.

    python -m tests.bench.bench_sequences                  all parts
    python -m tests.bench.bench_sequences --parts entities

simulated   ten annotators, four classes, sequences of 5 to 60 items; the oracle knows chain and annotators. Macro F.
entities    conll2003_ner_crowd: 81,546 labeled tokens, 47 annotators, no word is seen. Precision, recall and F1 of
            spans, strict and partial, over all tokens with a gold label; a token without labels is outside. First by
            beliefs of tokens, then with spans matched (`span_consensus`).
crowds      simulated crowds of seven kinds that mark spans (`span_crowds`): strict F1, and how much surer the spans are
            than they are often right
cost        a million tokens in 50,000 sequences, 10 classes, 5 labels a token: seconds beside VB-IBCC of that table,
            as it is and with all iterations over all items
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.models import VBIBCC, BSCSeq, DawidSkene, MajorityVote, SequentialDawidSkene, SequentialIBCC
from hitl.models.inference import em
from hitl.models.priors.markov_chain import Sequences
from hitl.models.registry import combiner
from hitl.tables.read import read_table
from tests import reference_data
from tests.bench import results
from tests.bench.entity_spans import Span, partial, spans, strict
from tests.bench.scale.passes import many
from tests.kinds.span_crowds import CROWDS, found_spans, in_characters
from tests.models.sequences.test_sequential import macro_f, simulated

METHODS: dict[str, Any] = {
    "majority": MajorityVote(),
    "dawid-skene": DawidSkene(),
    "vb-ibcc": VBIBCC(),
    "sequential-dawid-skene": SequentialDawidSkene(),
    "sequential-ibcc": SequentialIBCC(),
    "bsc-seq": BSCSeq(),
}
MATCHED = ("majority", "dawid-skene", "vb-ibcc", "default")
FOUND = ("majority", "vb-ibcc", "default", "sequential-ibcc", "bsc-seq")
"""Methods of `crowds`: those for items with spans matched, and two chains of tokens."""
METHODS_OF_CHAINS = {"sequential-dawid-skene", "sequential-ibcc", "bsc-seq"}
ALL_ITEMS = "vb-ibcc, all items"
"""VB-IBCC whose iterations all go over all items, as those of the chains do; it takes fewer itself."""
KINDS: dict[str, dict[str, Any]] = {"any chain": {}, "sticky, weak": {"sticky": 0.8, "right": (0.05, 0.45)}}

Part = tuple[list[str], dict[str, Any]]


def fitted(name: str, evidence: Evidence) -> Any:
    """What a method finds; those without a chain are not given the sequences."""
    method = METHODS[name]
    return method.fit(evidence if METHODS_OF_CHAINS & {name} else Evidence(evidence.annotations))


def near_the_oracle(seeds: int) -> Part:
    cells, figures = {}, {}
    for kind, options in KINDS.items():
        for n_items in (1_000, 10_000):
            scores: dict[str, list[float]] = {name: [] for name in [*METHODS, "oracle"]}
            for seed in range(seeds):
                evidence, truth, chain, log_pi_klj = simulated(n_items, seed, **options)
                for name in METHODS:
                    scores[name].append(macro_f(truth, fitted(name, evidence).probabilities))
                scores["oracle"].append(macro_f(truth, em.expectation(evidence, chain, log_pi_klj).q_nj))
            row = f"{kind}, {n_items}"
            behind = np.array(scores["oracle"]) - np.array(scores["sequential-dawid-skene"])
            figures[row] = {name: float(np.mean(one)) for name, one in scores.items()} | {"behind": float(behind.max())}
            cells[row] = {name: results.spread(one, 4) for name, one in scores.items()}
    return [*results.table(cells), f"macro F: means of {seeds} seeds (standard deviation)"], figures


def entities(seeds: int) -> Part:
    path = reference_data.folder("conll2003_ner_crowd")
    table, truth = read_table(path / "items.csv.gz"), read_table(path / "truth.csv.gz")
    items, names = table.column("item").to_pylist(), table.column("sequence").to_pylist()
    number = {name: code for code, name in enumerate(dict.fromkeys(names))}
    positions = [int(one) for one in table.column("position").to_pylist()]
    places = np.array([(number[name], position) for name, position in zip(names, positions, strict=True)])
    evidence = Evidence.from_tables(read_table(path / "annotations.csv.gz"), items=items)
    evidence = Evidence(evidence.annotations, sequence=places)
    annotations, order = evidence.annotations, Sequences(places)
    known = dict(zip(truth.column("item").to_pylist(), truth.column("label").to_pylist(), strict=True))
    right = spans([known.get(item) for item in annotations.items], order)
    labeled = annotations.labels_per_item > 0
    figures, rows = {}, {}

    def tell(name: str, found: list[Span], began: float) -> None:
        exact, loose = strict(found, right), partial(found, right)
        figures[name] = {"strict": exact.f1, "partial": loose.f1}
        rows[name] = {
            f"{what}, {figure}": getattr(one, figure)
            for what, one in (("strict", exact), ("partial", loose))
            for figure in ("precision", "recall", "f1")
        }
        rows[name]["seconds"] = time.perf_counter() - began

    for name in METHODS:
        began = time.perf_counter()
        codes = fitted(name, evidence).codes
        said = [str(annotations.classes[j]) if there else None for j, there in zip(codes, labeled, strict=True)]
        tell(name, spans(said, order), began)
    marked = as_span_labels(annotations, places)
    for name in MATCHED:
        began, found = time.perf_counter(), found_spans(marked, combiner(name))
        ends = [(one, one.place["start"] // 2, (one.place["end"] + 1) // 2) for one in found]
        tell(f"matched, {name}", [Span(int(one.item), first, end, str(one.label)) for one, first, end in ends], began)
    return [f"{len(right):,} entities", *results.table(rows)], figures


def as_span_labels(annotations: Annotations, place_n2: Any) -> SpanLabels:
    """The same labels as spans; every token is a word of one letter."""
    said: dict[tuple[int, int], dict[int, str]] = {}
    for n, k, code in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        number, position = place_n2[n].tolist()
        said.setdefault((number, int(k)), {})[position] = str(annotations.options[code])
    answers = []
    for (number, k), labels in said.items():
        at = np.arange(max(labels) + 1)
        one = Sequences(np.stack((np.zeros_like(at), at), axis=1))
        own = spans([labels.get(position) for position in at.tolist()], one)
        answers.append(Answer(number, k, [in_characters((span.first, span.end, span.kind)) for span in own]))
    longest = np.bincount(place_n2[:, 0], weights=np.ones(len(place_n2))).astype(int)
    return SpanLabels.from_texts({n: " ".join("w" * int(size)) for n, size in enumerate(longest)}, answers)


def crowds(seeds: int) -> Part:
    cells, figures = {}, {}
    for kind, crowd in CROWDS.items():
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in FOUND}
        for seed in range(seeds):
            labels, right = crowd.draw(seed)
            total = sum(map(len, right.values()))
            for name in FOUND:
                found = found_spans(labels, combiner(name))
                hits = np.array([(*one.at("start", "end"), one.label) in right[str(one.item)] for one in found])
                sure = np.array([one.probability for one in found])
                scores[name].append((2 * hits.sum() / (len(found) + total), sure.mean() - hits.mean()))
        mean = {name: np.mean(one, axis=0) for name, one in scores.items()}
        figures[kind] = {name: {"strict": float(f1), "over-sure": float(over)} for name, (f1, over) in mean.items()}
        cells[kind] = {name: f"{f1:.3f} ({over:+.3f})" for name, (f1, over) in mean.items()}
    return [*results.table(cells), f"strict F1 (surer than right): means of {seeds} seeds"], figures


def cost(seeds: int) -> Part:
    rng, n, j, k = np.random.default_rng(0), 1_000_000, 10, 300
    truth = np.repeat(rng.integers(j, size=n // 4), 4)
    item = np.repeat(np.arange(n, dtype=np.int32), 5)
    annotator = ((rng.integers(k, size=(n, 1)) + np.arange(5) * 7) % k).ravel().astype(np.int32)
    right = rng.random(item.size) < rng.uniform(0.5, 0.9, size=k)[annotator]
    label = np.where(right, truth[item], rng.integers(j, size=item.size)).astype(np.int32)
    names = tuple(range(j))
    annotations = Annotations(item, annotator, label, tuple(range(n)), tuple(range(k)), names, names)
    places = np.stack((np.arange(n) // 20, np.arange(n) % 20), axis=1)
    lines, seconds = ["a million tokens:"], {}
    for name in ("vb-ibcc", ALL_ITEMS, *sorted(METHODS_OF_CHAINS)):
        evidence = Evidence(annotations, sequence=places if name in METHODS_OF_CHAINS else None)
        method = METHODS["vb-ibcc" if name == ALL_ITEMS else name]
        replace(method, max_iterations=1).fit(evidence)  # compiles
        fit = (many(method, evidence) if name == ALL_ITEMS else method.fit(evidence)).fit
        seconds[name] = fit.seconds
        lines.append(f"{name:24}{fit.seconds:8.1f} s {fit.iterations:4} iterations")
    return lines, {"seconds": seconds}


def bars(figures: Mapping[str, Any]) -> list[results.Bar]:
    """The bars of the parts that were run."""
    found = []
    for name, row in figures.get("simulated", {}).items():
        limit = 0.002 if name.endswith("10000") else 0.03
        found.append(results.at_most(f"{name}: behind the oracle in each seed", row["behind"], limit))
    if of := figures.get("entities"):
        gain = max(row["strict"] for row in of.values()) - of["vb-ibcc"]["strict"]
        found.append(results.at_least("entities: strict F1 of the best less vb-ibcc's", gain, 0.02, ".3f"))
        found.append(
            results.at_least("entities: strict F1 of the default", of["matched, default"]["strict"], 0.72, ".3f")
        )
    if of := figures.get("crowds"):
        behind = {
            kind: max(one["strict"] for one in row.values()) - row["default"]["strict"] for kind, row in of.items()
        }
        found.append(results.at_most_each("crowds: strict F1 of the default behind the best", behind, 0.02, ".3f"))
    if of := figures.get("cost"):
        slowest = max(of["seconds"][name] for name in METHODS_OF_CHAINS)
        for other in ("vb-ibcc", ALL_ITEMS):
            claim = f"a million tokens: seconds, in terms of those of {other},"
            found.append(results.at_most(claim, slowest / of["seconds"][other], 4, ".1f"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"simulated": near_the_oracle, "entities": entities, "crowds": crowds, "cost": cost}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=5)
    page = results.Page()
    figures = page.parts(parts, options.parts, options.seeds)
    page.held(*bars(figures))
    if options.save:
        page.save("sequences", figures)


if __name__ == "__main__":
    main()
