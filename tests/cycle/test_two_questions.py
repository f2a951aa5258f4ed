"""Two questions about each item, one of which is hard: done, why not, and what to do are told for each."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from hitl import cycle
from hitl.events.bodies import text_of
from hitl.platform import Cursor, Page
from hitl.project import opened
from hitl.store import Store
from tests.command_line import Run
from tests.events.receivers import SECRET
from tests.service.web.served import serving
from tests.two_questions import TwoQuestions, written

CREW = '"ann", "bob", "cyd"'
STUCK = "stars is stuck: 0 of 40 items are done, and everyone has answered or skipped all 40 open items. "
UNSEEN = "most annotators did not see the question"
FINISHED = "tone is finished: all 40 items are done."


def rows(file: str) -> list[dict[str, str]]:
    with Path(file).open(newline="") as handle:
        return list(csv.DictReader(handle))


def told(store: Store, name: str = "reviews") -> dict[str, list[dict[str, Any]]]:
    """Kind of event -> what was announced, oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in reversed(store.deliveries(name, 100)):
        event = json.loads(one.body)
        found.setdefault(event["type"], []).append(event)
    return found


@pytest.mark.parametrize("crew", [CREW, ""])
def test_each_question_is_done_on_its_own_and_one_that_is_stuck_is_told_with_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: str
) -> None:
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    address = '[[events]]\nname = "ci"\nurl = "http://127.0.0.1:9/hook"\n'
    config = written(tmp_path, monkeypatch, "gold = 3", crew, address)
    assert run("run")[0] == 0
    status = run("status")[1]
    assert f"\n{FINISHED}\n{STUCK}" in status
    advice = next(line for line in status.splitlines() if line.startswith("Next:"))
    assert "add an annotator, lower `budget.target_confidence` from 95 % to " in advice
    assert "more items of stars would be done), or accept the labels as they are" in advice

    data = json.loads(run("status", "--json")[1])
    assert {name: one["done"] for name, one in data["last"]["questions"].items()} == {"tone": 40, "stars": 0}
    assert run("export", "labels.csv")[0] == 0
    tone, stars = rows("labels.tone.csv"), rows("labels.stars.csv")
    assert [row["done"] for row in tone] == ["true"] * 40
    assert [row["why"] for row in tone[:4]] == ["ground truth is known"] * 3 + ["confidence reached the target"]
    assert {(row["done"], row["why"]) for row in stars} == {("false", "")}
    assert {row["item_done"] for row in (*tone, *stars)} == {"false"}

    assert run("report", "--output", "report.html")[0] == 0
    page = Path("report.html").read_text()
    with serving(config) as served:
        overview = served.html("/projects/reviews")
        store = served.project("reviews").store
        events = told(store)
        assert 'hx-trigger="hitl:changed from:body throttle:1s, every 30s"' in served.html("/projects/reviews/runs")
        assert overview.index("is stuck") < overview.index("Download labels of tone")
        link = "/projects/reviews/items?question=stars&sort=item"
        assert len(served.csv(link, size=0)) == 40
        for question, done in (("tone", 40), ("stars", 0)):
            link = f"/projects/reviews/items?question={question}&show=done"
            assert link.replace("&", "&amp;") in overview
            assert served.json(link)["found"] == done
            assert served.json(link.replace("=done", "=open"))["found"] == 40 - done
        assert served.json("/projects/reviews/items?show=done")["found"] == 0
        assert [one["item"] for one in served.json("/projects/reviews/items?show=contested&size=0")["rows"]] == []
    for text in (*data["summary"]["state"], data["summary"]["advice"].partition("`")[0]):
        assert text in status or text[:1].lower() + text[1:] in status
        assert text in page
        assert text in overview
    assert [one["data"]["question"] for one in events["target.reached"]] == ["tone"]
    (stopped,) = events["project.stopped"]
    assert stopped["data"]["questions"]["stars"] == {"items": 40, "done": 0, "below": 40, "stuck": 40}
    assert STUCK.strip() in text_of(stopped)
    (decided,) = events["items.decided"]
    assert (decided["data"]["question"], decided["data"]["decided"], decided["data"]["of"]) == ("tone", 40, 40)
    assert decided["data"]["items"][0]["labels"] == {"tone": "good"}
    assert "`tone`: 40 items newly decided; 40 of 40 items are done" in text_of(decided)


def test_one_question_of_the_two_alone_is_done_as_it_is_beside_the_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, "stars = false", CREW)
    assert run("run")[0] == 0
    status = run("status")[1]
    assert "\nThe project is finished: all 40 items are done.\nNext: download the labels: " in status
    assert run("export", "labels.csv")[0] == 0
    assert {row["done"] for row in rows("labels.csv")} == {"true"}
    assert "item_done" not in rows("labels.csv")[0]


def test_labels_at_the_limit_end_the_project_below_its_target(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item is done, and yet no target is reached."""
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    address = '[[events]]\nname = "ci"\nurl = "http://127.0.0.1:9/hook"\n'
    config = written(tmp_path, monkeypatch, "", CREW, address)
    config.write_text(config.read_text().replace("open_questions = 6", "open_questions = 6\nmax_labels = 3"))
    for _ in range(2):
        assert run("run")[0] == 0
    status = run("status")[1]
    assert "40 of them stopped at the limit of 3 answers, below the target of 95 %." in status
    assert "raise `budget.max_labels`" in status
    with opened(config) as (_, store, _):
        events = told(store)
    assert [one["data"]["question"] for one in events["target.reached"]] == ["tone"]
    assert len(events["project.stopped"]) == 1


def test_while_answers_are_awaited_each_question_says_how_many(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path, monkeypatch, "answered = 30", CREW)
    with opened(config) as (settings, store, connector):
        judgement = cycle.run(settings, store, connector).judgement
    asked = judgement.metrics["questions"]["tone"]["asked"]
    assert 0 < asked <= 6
    status = run("status")[1]
    assert f"tone is in progress: 30 of 40 items are done, 10 are open ({asked} with a question waiting)." in status
    assert (
        f"stars is in progress: 0 of 40 items are done, 40 are open ({asked} with a question waiting, 30 that "
        in status
    )
    assert "\nNext: wait for answers: " in status


OWN = """
from dataclasses import replace
import hitl

class Own(hitl.models.MajorityVote):
    def fit(self, evidence, *, start=None):
        found = super().fit(evidence)
        return replace(found, fit=replace(found.fit, method=f"{len(found.classes)} classes"))
"""


def test_a_file_names_the_method_of_its_question(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    written(tmp_path, monkeypatch, more='[combine]\nmethod = "own.py:Own"\n')
    assert run("run")[0] == 0
    assert run("export", "labels.parquet")[0] == 0
    for question, method in (("tone", b"2 classes"), ("stars", b"5 classes")):
        assert parquet.read_schema(f"labels.{question}.parquet").metadata[b"hitl.method"] == method


def test_what_a_push_of_our_own_changes_is_not_counted_as_new(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, "answered = 39", CREW)
    assert "pulled 40 items: 277 entries new or changed" in run("run")[1]
    pull = TwoQuestions.pull

    def served(self: TwoQuestions, cursor: Cursor | None) -> Iterator[Page]:
        for page in pull(self, cursor):
            yield replace(page, items=tuple(replace(item, labels_wanted=4) for item in page.items))

    monkeypatch.setattr(TwoQuestions, "pull", served)
    written(tmp_path, monkeypatch, "", CREW)  # three people answer the last item
    assert "pulled 40 items: 6 entries new or changed, 0 deleted" in run("run")[1]


def test_a_question_that_most_annotators_did_not_see_needs_no_answer_and_gets_no_label(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITL_EVENTS_CI_SECRET", SECRET)
    address = '[[events]]\nname = "ci"\nurl = "http://127.0.0.1:9/hook"\n'
    source = "hides = true\nitems = 50\nanswered = 40"
    config = written(tmp_path, monkeypatch, source, CREW.replace(", ", ', "dan", ', 1), address)
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    stars = {row["item"]: row for row in rows("labels.stars.csv")}
    bad = [stars[str(n)] for n in range(1, 40, 2)]
    assert {(row["label"], row["done"], row["why"]) for row in bad} == {("", "true", UNSEEN)}
    assert all(stars[str(n)]["label"] for n in range(0, 40, 2))
    assert {stars[str(n)]["done"] for n in range(40, 50)} == {"false"}, "nobody has seen these"

    with opened(config) as (_, store, _):
        _, plan = store.latest("reviews") or pytest.fail("no run")
        assert {int(str(ask.item)) for ask in plan.asks}.isdisjoint(range(1, 40, 2))
        (first,) = [done for done in plan.done if str(done.item) == "1"]
        assert (first.labels, first.why) == (("bad", ""), "confidence reached the target")
        (announced,) = [one["data"] for one in told(store)["items.decided"] if one["data"]["question"] == "stars"]
    assert {tuple(one["labels"]) for one in announced["items"] if one["why"] == UNSEEN} == {()}
    believed = json.loads(run("status", "--json")[1])["last"]["questions"]["stars"]["expected"]["accuracy"]
    assert believed > 0.7, "what is not asked is neither right nor wrong"
