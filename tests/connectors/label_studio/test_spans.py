"""Parts of texts in a real Label Studio: four annotators' spans pulled, combined, planned, pushed back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.kinds.spans import SpanParts
from hitl.parts import spans_as_label, spans_in
from hitl.platform import Operation
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.browser import needs_browser, open_consensus, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import untouched

pytestmark = [pytest.mark.server, pytest.mark.journey]

SPANS = """<View><Labels name="ner" toName="text"><Label value="PER"/><Label value="ORG"/><Label value="LOC"/></Labels>
<Text name="text" value="$text"/></View>"""

TEXTS = {
    "Ada Lovelace met Bob in Rome.": [("Ada Lovelace", "PER"), ("Bob", "PER"), ("Rome", "LOC")],
    "🙂 Acme Paris hired Ada 🙂 in Oslo": [("Acme Paris", "ORG"), ("Paris", "LOC"), ("Ada", "PER"), ("Oslo", "LOC")],
    "Nothing to see here.": [],
    "Bob left Rome for Oslo.": [("Bob", "PER"), ("Rome", "LOC"), ("Oslo", "LOC")],
    "Cy and Dee of Initech.": [("Cy", "PER"), ("Dee", "PER"), ("Initech", "ORG")],
    "Eve saw Rome.": [("Eve", "PER"), ("Rome", "LOC")],
}


def regions(text: str, spans: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The result of Labels, as the web page writes it."""
    return [
        {
            "from_name": "ner",
            "to_name": "text",
            "type": "labels",
            "value": {"start": text.index(part), "end": text.index(part) + len(part), "text": part, "labels": [kind]},
        }
        for part, kind in spans
    ]


def marked(project: Project, texts: int = 5) -> list[int]:
    """Tasks of all texts; four annotators marked the first ones: the second overlooks one name, the third cuts one
    short, the fourth takes places for people."""
    rows = []
    for number, (whole, right) in enumerate(TEXTS.items()):
        wrong: dict[int, list[tuple[str, str]]] = {
            1: right[:-1],
            2: [(part.split()[-1], kind) if " " in part else (part, kind) for part, kind in right],
            3: [(part, "PER" if kind == "LOC" else kind) for part, kind in right],
        }
        annotations = [
            {"completed_by": int(who.id), "ground_truth": False, "result": regions(whole, wrong.get(k, right))}
            for k, who in enumerate(project.people[:4])
        ]
        rows.append({"data": {"text": whole}, "annotations": annotations if number < texts else []})
    answer = project.admin.post(f"{project.path}/import", rows, return_task_ids="true")
    return [int(number) for number in answer["task_ids"]]


def settings(project: Project, **budget: Any) -> Settings:
    crew = CrewSettings(annotators=tuple(person.email for person in project.people[:4]), capacity=3)
    source = LabelStudioSettings(url=project.server.url, project=project.number)
    return Settings(name="p", source=source, crew=crew, budget=BudgetSettings(**{"open_questions": 4, **budget}))


def consensus_of(project: Project, task: int) -> dict[str, Any]:
    (found,) = [one for one in project.task(task)["predictions"] if one["model_version"].startswith("hitl-consensus-")]
    return dict(found)


def test_spans_go_both_ways(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(SPANS)
    tasks = marked(project)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
        answers = store.annotations("p", "ner").to_pylist()
        again = cycle.run(settings(project), store, project.connector)
        untouched(settings(project), store, project.connector)
    assert report.pulled.problems == ()
    texts = list(TEXTS)
    assert spans_in(answers[0]["label"]) == [(0, 12, "PER"), (17, 20, "PER"), (24, 28, "LOC")]
    for number, task in enumerate(tasks[:5]):
        found = consensus_of(project, task)
        said = {
            (texts[number][r["value"]["start"] : r["value"]["end"]], *r["value"]["labels"]) for r in found["result"]
        }
        assert said == set(TEXTS[texts[number]]), texts[number]
        assert all(0.5 < region["score"] <= 1 for region in found["result"])
    assert not [one for one in project.task(tasks[5])["predictions"] if "consensus" in one["model_version"]]
    plan = report.judgement.plan
    assert str(tasks[5]) in {str(ask.item) for ask in plan.asks}
    assert again.changed == 0


@needs_browser
def test_the_page_shows_the_consensus_over_the_right_words(
    make_project: Callable[..., Project], tmp_path: Path, browser: Any
) -> None:
    """A name within a name, behind a character outside of the basic plane."""
    project = make_project(SPANS)
    task = marked(project)[1]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings(project), store, project.connector)
    open_consensus(browser, project.server.url, project.people[0].email, project.number, task)

    def regions_shown() -> list[str]:
        lines = text(browser).splitlines()
        kinds = {"PER", "ORG", "LOC"}
        return [f"{part} {kind}" for kind, part in pairwise(lines) if kind in kinds]

    right = {"Acme Paris ORG", "Paris LOC", "Ada PER", "Oslo LOC"}
    assert wait(lambda: right <= set(regions_shown())), text(browser)
    browser.save_screenshot(str(tmp_path / "consensus.png"))


def test_known_spans_are_ground_truth(make_project: Callable[..., Project], tmp_path: Path) -> None:
    """`hitl gold` writes a ground-truth annotation; the next cycle knows it, and asks no more about it."""
    project = make_project(SPANS)
    tasks = marked(project)
    right = spans_as_label([(0, 3, "PER"), (8, 12, "LOC")])
    known = Operation("gold", "ner", {"questions": {"ner": {str(tasks[5]): right}}})
    for changed in (1, 0):
        (receipt,) = project.connector.push([known])
        assert receipt.changed == changed
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        judgement = cycle.run(settings(project), store, project.connector).judgement
    evidence = judgement.evidence["ner"]
    assert [evidence.annotations.items[n] for n in evidence.known.nonzero()[0]] == [str(tasks[5])]
    spans = {(s.place["start"], s.label) for s in judgement.results["ner"].parts if s.item == str(tasks[5]) and s.found}
    assert spans == {(0, "PER"), (8, "LOC")}
    assert str(tasks[5]) not in {str(ask.item) for ask in judgement.plan.asks}


def test_a_span_beyond_its_text_is_told_and_left_out(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(SPANS)
    task = marked(project)[5]
    beyond = regions("Eve saw Rome.", [("Eve", "PER"), ("Rome", "LOC")])
    beyond[1]["value"]["end"] = 99
    project.person(0).post(f"/api/tasks/{task}/annotations/", {"result": beyond})
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(project), store, project.connector)
    (problem,) = report.pulled.problems
    assert "'LOC' from 8 to 99 reaches beyond the text, which has 13 characters" in problem
    parts = report.judgement.evidence["ner"].parts
    assert isinstance(parts, SpanParts)
    assert parts.labels.left_out == 1
