"""Random sequences of pages against a model: plain dicts, rule by rule."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hitl.platform import AnnotationRow, ItemRow, Page, PredictionRow
from hitl.store import Store
from tests.store.rows import item, page, predicted, said

ITEMS, QUESTIONS, MODELS = ("1", "2", "3"), ("q", "r"), ("m", "n")
_projects = itertools.count()


class Model:
    """What the store should hold after the pages so far."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[ItemRow, bool]] = {}
        self.annotations: dict[tuple[str, str], tuple[AnnotationRow, bool]] = {}
        self.predictions: dict[tuple[str, str, str], PredictionRow] = {}

    def apply(self, page: Page) -> None:
        listed = {row.key for row in page.items}
        fresh = set()
        for row in page.items:
            if row.key not in self.items or row.version >= self.items[row.key][0].version:
                self.items[row.key] = (row, True)
                fresh.add(row.key)
        told = [row for row in page.annotations if row.item in fresh or row.item not in listed]
        for row in told:
            known = self.annotations.get((row.question, row.key))
            if known is None or row.version >= known[0].version:
                self.annotations[row.question, row.key] = (row, True)
        names = {(row.question, row.key) for row in told}
        for name, (row, _) in self.annotations.items():
            if row.item in fresh and name not in names:
                self.annotations[name] = (row, False)
        self.predictions = {name: row for name, row in self.predictions.items() if row.item not in fresh}
        for guess in page.predictions:
            if guess.item in fresh:
                self.predictions[guess.item, guess.question, guess.model] = guess
        if page.live is not None:
            self.items = {key: (row, key in page.live) for key, (row, _) in self.items.items()}

    def alive(self, kind: str, question: str | None = None) -> list[AnnotationRow]:
        rows = [row for row, alive in self.annotations.values() if alive and row.kind == kind]
        rows = [row for row in rows if row.item in self.items and self.items[row.item][1]]
        return [row for row in rows if question in (None, row.question)]

    def view(self) -> dict[str, Any]:
        items = [(row.key, row.closed) for row, alive in self.items.values() if alive]
        view: dict[str, Any] = {"items": items}
        view["skips"] = {(row.item, row.annotator) for row in self.alive("skip")}
        for question in QUESTIONS:
            answers = self.alive("answer", question)
            view[f"answers {question}"] = sorted((row.item, str(row.annotator), row.label) for row in answers)
            gold = sorted(self.alive("gold", question), key=lambda row: (row.version, row.key))
            view[f"gold {question}"] = {row.item: row.label for row in gold}
            guesses = [row for row in self.predictions.values() if row.question == question]
            guesses = [row for row in guesses if self.items[row.item][1]]
            view[f"predictions {question}"] = {(row.model, row.item): row.probabilities["a"] for row in guesses}
        return view

    def answering(self) -> set[tuple[str, str]]:
        """Return item and name of annotations that answer a question."""
        return {(row.item, row.key) for kind in ("answer", "gold") for row in self.alive(kind)}

    def counts(self) -> dict[str, int]:
        said = self.alive("answer")
        return {
            "items": sum(alive for _, alive in self.items.values()),
            "annotations": len({row.key for row in said}),
            "labels": len({(row.item, row.question, row.annotator or f"({row.key})") for row in said}),
            "annotators_with_labels": len({row.annotator for row in said} - {None}),
            "skips": len({row.key for row in self.alive("skip") if (row.item, row.key) not in self.answering()}),
            "gold": len({row.item for row in self.alive("gold")}),
            "predictions": sum(self.items[row.item][1] for row in self.predictions.values()),
        }


def view(store: Store, project: str) -> dict[str, Any]:
    rows = store.items(project).to_pylist()
    seen: dict[str, Any] = {"items": [(row["item"], row["closed"]) for row in rows]}
    seen["skips"] = {(row["item"], row["annotator"]) for row in store.skips(project).to_pylist()}
    for question in QUESTIONS:
        answers = store.annotations(project, question).to_pylist()
        seen[f"answers {question}"] = sorted((row["item"], str(row["annotator"]), row["label"]) for row in answers)
        gold = store.gold(project, question).to_pylist()
        seen[f"gold {question}"] = {row["item"]: row["label"] for row in gold}
        seen[f"predictions {question}"] = {
            (model, row["item"]): row["p_a"]
            for model, table in store.predictions(project, question).items()
            for row in table.to_pylist()
        }
    return seen


@st.composite
def pages(draw: st.DrawFn) -> Page:
    versions = st.integers(0, 3)
    listed = draw(st.lists(st.sampled_from(ITEMS), unique=True))
    rows: list[Any] = [item(key, draw(versions), closed=draw(st.booleans())) for key in listed]
    names = st.tuples(st.sampled_from("abcd"), st.sampled_from(QUESTIONS))
    for key, question in draw(st.lists(names, unique=True, max_size=6)):
        rows.append(
            said(
                key,
                draw(st.sampled_from(ITEMS)),
                draw(st.sampled_from(("yes", "no"))),
                draw(versions),
                who=draw(st.sampled_from(("ann", None))),
                kind=draw(st.sampled_from(("answer", "answer", "skip", "gold"))),
                question=question,
            )
        )
    guesses = st.tuples(st.sampled_from(ITEMS), st.sampled_from(MODELS), st.sampled_from(QUESTIONS))
    for key, model, question in draw(st.lists(guesses, unique=True, max_size=3)):
        share = draw(st.sampled_from((0.25, 0.5)))
        rows.append(predicted(key, model, question, a=share, b=1 - share))
    live = draw(st.none() | st.sets(st.sampled_from(ITEMS)))
    return page(draw(st.integers(0, 9)), *rows, live=None if live is None else live | set(listed))


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(pages(), st.sets(st.sampled_from(QUESTIONS))), min_size=1, max_size=6))
def test_the_store_agrees_with_the_model(store: Store, sequence: list[tuple[Page, set[str]]]) -> None:
    """Whatever snapshots are kept in between."""
    project, model = f"p{next(_projects)}", Model()
    with store.lease(project) as lease:
        for each, kept in sequence:
            model.apply(each)
            store.save_page(lease, each)
            assert view(store, project) == model.view()
            assert store.cursor(project) == each.cursor
            store.keep_answers(lease, kept)
            assert view(store, project) == model.view()
        counts = store.counts(project)
        counts.pop("annotators")
        assert counts == model.counts()
        assert store.annotation_count(project) == counts["annotations"]
        again = store.save_page(lease, sequence[-1][0])
        assert (again.changed, again.deleted) == (0, 0)
