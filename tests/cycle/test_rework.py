"""Items that were sent back, through whole cycles over tables."""

from __future__ import annotations

from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.platform import AnnotatorRow, Page
from hitl.settings import CrewSettings
from hitl.store import Store
from tests.projects import settings, status_text


def wanted(store: Store) -> dict[str, int]:
    (operation, _), *_ = store.operations("p", "labels_wanted")
    return {str(key): int(number) for key, number in operation.payload["items"].items()}


def test_the_same_annotator_is_asked_first_and_nobody_else_is_let_in(folder: Path, store: Store) -> None:
    first = cycle.run(settings(), store, Tables(folder))
    before = wanted(store)
    store.send_back("p", "3", "ann", "lea", "look again")
    report = cycle.run_if_changed(settings(), store, Tables(folder))
    assert isinstance(report, cycle.CycleReport)  # the plan does not stand as it was
    ask = report.judgement.plan.asks[0]
    assert (ask.item, ask.annotator, ask.sent_back) == ("3", "ann", True)
    asked_of_others = {str(each.item) for each in report.judgement.plan.asks[1:]}
    assert "3" in asked_of_others or wanted(store).get("3") == before.get("3")
    assert len(report.judgement.plan.asks) == len(first.judgement.plan.asks) + 1


def test_an_expert_is_let_in(folder: Path, store: Store) -> None:
    plan = cycle.run(settings(), store, Tables(folder)).judgement.plan
    free = next(str(n) for n in range(9) if str(n) not in {str(ask.item) for ask in plan.asks})
    store.send_back("p", free, "zoe", "lea")
    cycle.run(settings(), store, Tables(folder))
    assert wanted(store)[free] == 4  # three have labeled it


def test_an_item_that_everyone_has_answered_waits_once_it_is_sent_back(folder: Path, store: Store) -> None:
    budget = settings().budget.model_copy(update={"target_confidence": 0.9999})
    sure = settings().model_copy(update={"budget": budget, "crew": CrewSettings(annotators=("ann", "bob", "cyd"))})
    plan = cycle.run(sure, store, Tables(folder)).judgement.plan
    (before,) = store.last_cycle("p").metrics["questions"].values()
    done = {str(one.item) for one in plan.done}
    item = next(str(n) for n in range(9) if str(n) not in done)
    store.send_back("p", item, "ann", "lea")
    cycle.run(sure, store, Tables(folder))
    (after,) = store.last_cycle("p").metrics["questions"].values()
    assert before["stuck"] > 0
    assert (after["stuck"], after["asked"]) == (before["stuck"] - 1, before["asked"] + 1)


def test_a_project_without_a_crew_that_everyone_has_answered_waits_for_somebody_new(folder: Path, store: Store) -> None:
    (folder / "items.csv").unlink()
    budget = settings().budget.model_copy(update={"target_confidence": 0.9999})
    anyone = settings().model_copy(update={"budget": budget, "crew": CrewSettings()})
    cycle.run(anyone, store, Tables(folder))
    said = status_text(anyone, store, 0.0)
    assert "everyone has answered or skipped all 9 open items. 6 questions wait for someone new. The" in said
    assert "anyone: 6 questions" in said


def test_what_is_taken_back_is_asked_no_longer(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder))
    store.send_back("p", "3", "ann", "lea")
    assert cycle.run(settings(), store, Tables(folder)).judgement.plan.asks[0].annotator == "ann"
    assert store.take_back("p", "3", "ann")
    assert not store.take_back("p", "3", "ann")
    assert all(ask.annotator != "ann" for ask in cycle.run(settings(), store, Tables(folder)).judgement.plan.asks)


def test_what_was_sent_back_follows_its_annotator_to_another_name(store: Store) -> None:
    def page(version: str, **names: str) -> Page:
        rows = tuple(AnnotatorRow(key, name) for key, name in names.items())
        return Page({"at": version}, annotators=rows, partial=True)

    with store.lease("p") as lease:
        store.save_page(lease, page("1", k1="Ann", k2="Bob"))
        for item, who in (("1", "Ann"), ("1", "Bob"), ("2", "Ann"), ("3", "zoe")):
            store.send_back("p", item, who, "lea", f"of {who}")
        store.save_page(lease, page("2", k1="Bob", k2="Anna"))  # Bob's name is Ann's now
    found = {(back.item, back.annotator, back.note) for back in store.sent_back("p")}
    with store.lease("p") as lease:
        store.save_page(lease, page("3", k3="Bob"))
        namesakes = {(back.item, back.annotator) for back in store.sent_back("p")}
        store.save_page(lease, page("4", k3="Bea"))
    assert namesakes == {("1", "Bob (k1)"), ("2", "Bob (k1)"), ("1", "Anna"), ("3", "zoe")}, "Bob is two by now"
    assert found == {(back.item, back.annotator, back.note) for back in store.sent_back("p")}
    assert found == {("1", "Bob", "of Ann"), ("2", "Bob", "of Ann"), ("1", "Anna", "of Bob"), ("3", "zoe", "of zoe")}


def test_what_waits_to_be_answered_again_expires_for_nobody(folder: Path, store: Store) -> None:
    """It stays with the annotator: the cycle behind it stands, and status tells of no other who gets it."""
    now = 1.7e9
    chosen = settings().model_copy(update={"crew": CrewSettings(expire_hours=1)})
    cycle.run_if_changed(chosen, store, Tables(folder), now=now)
    store.send_back("p", "3", "ann", "lea", "look again")
    assert isinstance(cycle.run_if_changed(chosen, store, Tables(folder), now=now + 1), cycle.CycleReport)
    for minutes in (1, 70, 80, 500):
        later = now + 60 * minutes
        assert isinstance(cycle.run_if_changed(chosen, store, Tables(folder), now=later), cycle.Unchanged)
    assert "overdue" not in status_text(chosen, store, now + 40 * 3600)
