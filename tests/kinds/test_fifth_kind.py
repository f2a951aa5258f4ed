"""A kind of answer that another package brings, all in this file, goes from the platform to the report and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from hitl import cycle
from hitl.annotations import Annotations
from hitl.connectors.tables import TablesSettings
from hitl.consensus import Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.export import label_tables
from hitl.kinds.kind import KINDS, NOTHING, Kind, Marked, PartsKind, StoredAnswers, kind_of
from hitl.manual_operations import known_truth
from hitl.models.combiner import Combiner
from hitl.parts import Part
from hitl.platform import Question
from hitl.report.page import render
from hitl.report.stored import stored_report
from hitl.settings import Settings
from hitl.store import Store
from tests.cycle.marked import Platform

# -- the kind ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointParts:
    question: Question
    points: Mapping[str, list[Marked]]


class Points(PartsKind):
    """At most one point in an image."""

    noun: ClassVar[str] = "points"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {"label": None, "confidence": None, "x": None, "y": None}

    def read(self, answer: str) -> list[Marked]:
        return [{"x": x, "y": y, "label": label} for x, y, label in json.loads(answer)]

    def write(self, parts: Iterable[Marked]) -> str:
        return json.dumps([(part["x"], part["y"], part["label"]) for part in parts])

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        question, rows = stored.question, list(stored.by_annotator())
        items, classes = stored.items().column("item").to_pylist(), (NOTHING, *question.classes)
        people = sorted({who for _, who, *_ in rows})
        points: dict[str, list[Marked]] = {item: [] for item in items}
        coded = []
        for item, who, answer, *_ in rows:
            read = self.read(answer)
            points[str(item)] += read
            coded.append((items.index(item), people.index(who), classes.index(read[0]["label"]) if read else 0))
        columns = np.array(coded, np.int32).reshape(-1, 3).T
        annotations = Annotations(*columns, tuple(items), tuple(people), classes, classes)
        return {question.name: Evidence(annotations, parts=PointParts(question, points))}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        assert isinstance(evidence.parts, PointParts)
        found = method.fit(replace(evidence, parts=None))
        parts = []
        for n, item in enumerate(found.items):
            label = found.classes[found.codes[n]]
            own = [(point["x"], point["y"]) for point in evidence.parts.points[str(item)] if point["label"] == label]
            if own:
                x, y = np.median(own, axis=0).tolist()
                parts.append(Part(item, label, {"x": x, "y": y}, float(found.confidence[n]), len(own)))
        return replace(found, question=evidence.parts.question, parts=tuple(parts))


# -- what becomes of it ------------------------------------------------------------------------------------

QUESTION = Question("ball", ("red", "<blue>"), ("red", "<blue>"), "points", "image")
ANSWERS = {
    "a": {"ann": [(1, 2, "red")], "bob": [(3, 2, "red")], "cyd": [(2, 5, "red")]},
    "b": {"ann": [], "bob": [], "cyd": [(9, 9, "<blue>")]},
    "c": {"ann": [(4, 4, "<blue>")], "bob": [(4, 4, "<blue>")], "cyd": [(4, 4, "<blue>")]},
    "d": {},
}


def point(place: tuple[float, float, str]) -> Marked:
    return dict(zip(("x", "y", "label"), place, strict=True))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("points", "tests.kinds.test_fifth_kind:Points", "hitl.kinds")
    monkeypatch.setitem(KINDS.others, "points", entry)


def test_it_goes_through_evidence_consensus_operations_export_and_report(tmp_path: Path) -> None:
    write = kind_of(QUESTION).write
    answers = {item: {who: write(map(point, own)) for who, own in given.items()} for item, given in ANSWERS.items()}
    platform = Platform(QUESTION, {item: f"{item}.png" for item in ANSWERS}, answers)
    settings = Settings(name="p", source=TablesSettings(path="."), combine={"method": "majority"})
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings, store, platform)
        again = cycle.run(settings, store, platform)
        latest = store.latest("p")
        assert store.questions("p") == (QUESTION,)
        page = render(stored_report(settings, store, (QUESTION,)))
        table = label_tables(report.judgement, store.items("p"), {"a": "photo a"})["ball"]
    assert report.pulled.problems == ()
    assert again.changed == 0, "the consensus is the one that was pushed"
    assert latest is not None
    assert latest[0]["ball"].parts == report.judgement.results["ball"].parts
    (pushed,) = (operation for operation in platform.pushed if operation.kind == "consensus")
    rows = {row["item"]: row["parts"] for row in pushed.payload["questions"]["ball"]}
    assert {item: [(part["x"], part["y"], part["label"]) for part in parts] for item, parts in rows.items()} == {
        "a": [(2, 2, "red")],
        "b": [],
        "c": [(4, 4, "<blue>")],
    }
    exported = [(row["item"], row["label"], row["x"]) for row in table.to_pylist()]
    assert exported == [("photo a", "red", 2), ("b", None, None), ("c", "<blue>", 4)]
    assert "Items, the least sure first" in page
    assert "&lt;blue&gt;" in page
    assert "<blue>" not in page


def test_what_it_does_not_define_is_refused() -> None:
    kind: Kind = kind_of(QUESTION)
    with pytest.raises(BadSettings, match="export: --annotations does not write points"):
        kind.answers(Evidence(Annotations.from_matrix([[0]])), {})
    with pytest.raises(BadSettings, match="ball: known points are not read from a table"):
        known_truth(pa.table({"item": ["a"], "label": ["red"]}), (QUESTION,), None, "truth.csv")


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(
        BadSettings, match="kind of answer 'curves' is unknown; expected one of choices, ordinal, spans"
    ):
        kind_of(Question("q", ("a",), ("a",), "curves"))


def test_every_kind_reads_what_it_writes() -> None:
    parts = {
        "spans": [{"label": "PER", "start": 0, "end": 3}],
        "time_spans": [{"label": "walk", "start": 0.5, "end": "2026-02-01T00:00:00"}],
        "boxes": [
            {"label": "cat", "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0, "image_width": 40, "image_height": 30}
        ],
        "masks": [{"label": "cat", "height": 1, "width": 2, "rle": [1, 2, 3]}],
        "choices": [{"label": "yes"}],
        "ordinal": [{"label": "4"}],
        "points": [{"label": "red", "x": 1, "y": 2}],
    }
    assert set(parts) == {*KINDS.own, "points"}
    for name, own in parts.items():
        kind = kind_of(Question("q", ("a",), ("a",), name))
        assert kind.read(kind.write(own)) == own
