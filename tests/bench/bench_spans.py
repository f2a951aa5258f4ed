"""Spans of texts: crowds that miss, invent, shift and mix up, and named entities by real annotators.

    python -m tests.bench.bench_spans                  all parts
    python -m tests.bench.bench_spans --parts crowds

crowds      simulated crowds of eight kinds, 300 texts each (`span_crowds`): strict F1, and how much surer the spans are
            than they are often right
entities    conll2003_ner_crowd: 81,546 labeled tokens, 47 annotators, no word is seen. Precision, recall and F1 of
            spans, strict and partial, over all tokens with a gold label; a token without labels is outside.

A method is fitted to tokens with the classes O, B-kind and I-kind, or to matched spans.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.models import VBIBCC, MajorityVote
from hitl.models.priors.markov_chain import Sequences
from hitl.models.registry import combiner
from hitl.tables.read import read_table
from tests import reference_data
from tests.bench import results
from tests.bench.bench_sequences import METHODS, fitted
from tests.kinds.entity_spans import Span, partial, spans, strict
from tests.kinds.span_crowds import CROWDS, found_spans, in_characters

ON_TOKENS = {"majority, tokens": MajorityVote(), "vb-ibcc, tokens": VBIBCC()}
MATCHED = ("majority", "dawid-skene", "vb-ibcc", "default")
FOUND = ("bsc-seq", "majority", "vb-ibcc", "default")
"""Methods of `crowds`: a chain of tokens, and those for matched spans."""

Part = tuple[list[str], dict[str, Any]]


def of_tokens(labels: SpanLabels, method: Any) -> list[tuple[Any, ...]]:
    """Return item, start, end and label of the spans of the most probable classes of tokens."""
    evidence, tokens = labels.token_evidence(0), labels.tokens
    assert evidence.sequence is not None
    said = [str(label) for label in method.fit(Evidence(evidence.annotations)).labels]
    item_s, first_s = np.unique(tokens.item_t, return_index=True)
    found = []
    for span in spans(said, Sequences(evidence.sequence)):
        first = first_s[span.sequence] + span.first
        last = first_s[span.sequence] + span.end - 1
        item = labels.items[item_s[span.sequence]]
        found.append((item, int(tokens.start_t[first]), int(tokens.end_t[last]), span.kind))
    return found


def crowds(seeds: int) -> Part:
    cells, figures = {}, {}
    for kind, crowd in CROWDS.items():
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ON_TOKENS, *FOUND)}
        for seed in range(seeds):
            labels, spans_of = crowd.draw(seed)
            right = {(name, *span) for name, own in spans_of.items() for span in own}
            for name, method in ON_TOKENS.items():
                found = of_tokens(labels, method)
                scores[name].append((2 * len(right & set(found)) / (len(found) + len(right)), np.nan))
            for name in FOUND:
                parts = found_spans(labels, combiner(name))
                hits = np.array([(one.item, *one.at("start", "end"), one.label) in right for one in parts])
                sure = np.array([one.probability for one in parts])
                scores[name].append((2 * hits.sum() / (len(parts) + len(right)), sure.mean() - hits.mean()))
        mean = {name: np.mean(one, axis=0) for name, one in scores.items()}
        figures[kind] = {name: {"strict": float(f1), "over-sure": float(over)} for name, (f1, over) in mean.items()}
        cells[kind] = {
            name: f"{f1:.3f}" + ("" if np.isnan(over) else f" ({over:+.3f})") for name, (f1, over) in mean.items()
        }
    return [*results.table(cells), f"strict F1 (surer than right): means of {seeds} seeds"], figures


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


def bars(figures: Mapping[str, Any]) -> list[results.Bar]:
    """The bars of the parts that were run."""
    found, behind = [], {}
    for kind, row in figures.get("crowds", {}).items():
        behind[kind] = max(row[name]["strict"] for name in ON_TOKENS) - row["default"]["strict"]
    if of := figures.get("entities"):
        others = max(of[name]["strict"] for name in ("majority", "vb-ibcc"))
        behind["entities"] = others - of["matched, default"]["strict"]
    if behind:
        claim = "strict F1 of the default behind the best of majority and vb-ibcc on tokens"
        found.append(results.at_most_each(claim, behind, 0.0, ".3f"))
    if of := figures.get("crowds"):
        over = {kind: row["default"]["over-sure"] for kind, row in of.items()}
        found.append(results.at_most_each("crowds: spans of the default surer than right", over, 0.05, ".3f"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"crowds": crowds, "entities": entities}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=5)
    page = results.Page()
    figures = page.parts(parts, options.parts, options.seeds)
    page.held(*bars(figures))
    if options.save:
        page.save("spans", figures)


if __name__ == "__main__":
    main()
