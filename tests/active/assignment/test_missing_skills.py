"""Items that need what no annotator of the crew can do: said, not closed, until a setting or a colleague mends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.active.pending.blockers import missing_in_words, missing_skills
from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.connectors.tables import Tables
from hitl.crew import Budget, Crew
from hitl.metrics import outlook
from hitl.models.dawid_skene import DawidSkene
from hitl.plan import Plan
from hitl.settings import CrewSettings, Settings
from hitl.store import Store
from tests.active.pending.test_outstanding import ITEMS, NEVER_DONE, planned, questions
from tests.projects import HOUR, NOON, settings, status_text

LANGUAGES = ("de", "fr", "it", "law")


@pytest.mark.parametrize("seed", range(30))
def test_an_item_is_lacking_exactly_when_nobody_may_answer_it(seed: int) -> None:
    """By asking of every person and item whether they may."""
    rng = np.random.default_rng(seed)

    def some() -> frozenset[str]:
        return frozenset(word for word in LANGUAGES if rng.random() < 0.35)

    crew = Crew(
        ("ann", "bob"), skills={"ann": some(), "bob": some(), "eve": some()}, needs={n: some() for n in range(12)}
    )
    skilled = [crew.skills[name] for name in crew.names]
    barred = {n for n in range(15) if not any(crew.needs.get(n, frozenset()) <= has for has in skilled)}
    found = missing_skills(range(15), crew)
    assert found.total() == len(barred)
    had = crew.skills["ann"] | crew.skills["bob"]
    assert {skill for n in barred for skill in crew.needs[n] - had} == {
        skill for skills in found for skill in skills if not set(skills) <= had
    }
    assert not missing_skills(set(range(15)) - barred, crew)


def test_it_is_said_with_what_would_help() -> None:
    crew = Crew(
        ("ann", "bob"),
        skills={"ann": frozenset({"de"}), "bob": frozenset({"fr"}), "Ann": frozenset({"it"})},
        needs={0: frozenset({"it"}), 1: frozenset({"it", "de"}), 2: frozenset({"de", "fr"}), 3: frozenset({"de"})},
    )
    assert missing_in_words(missing_skills(range(4), crew), crew) == (
        "no annotator has the skills that 3 items need: 'it' (2), 'de' and 'fr' (1) (the crew has 'de', 'fr'; "
        "`crew.skills`)"
    )
    many = Crew(("ann",), needs={n: frozenset({f"l{n}"}) for n in range(7)})
    said = missing_in_words(missing_skills(range(7), many), many)
    assert said.endswith("'l4' (1), and 2 more (the crew has no skills; `crew.skills`)")
    assert not missing_skills(range(4), Crew((), needs={0: frozenset({"x"})}))
    assert not missing_skills(range(4), Crew(("ann",)))


# -- plans -------------------------------------------------------------------------------------------------

ALL = frozenset({"de"})


def test_a_skill_that_nobody_has_does_not_end_the_project() -> None:
    crew = Crew(("ann", "bob"), needs=dict.fromkeys(range(ITEMS), ALL))
    plan = planned(questions(), crew, None, 10.0)
    assert (plan.asks, plan.stop, plan.open_items) == ((), None, ITEMS)
    mended = planned(questions(), Crew(("ann", "bob"), needs=crew.needs, skills={"bob": ALL}), plan, 20.0)
    assert {ask.annotator for ask in mended.asks} == {"bob"}


def test_nor_does_one_where_the_others_have_answered_all_they_may() -> None:
    """Items 0 and 1 need what nobody has; the rest has been answered or skipped by everybody: not the end either."""
    answers = {(who, item): 0 for item in range(2, ITEMS) for who in ("ann", "bob")}
    del answers["bob", 7]
    needs = dict.fromkeys(range(2), ALL)
    crew = Crew(("ann", "bob"), needs=needs, never=frozenset({("bob", 7)}))
    plan = planned(questions(answers), crew, None, 10.0)
    assert (plan.asks, plan.stop) == ((), None)
    able = Crew(("ann", "bob"), needs=needs, never=crew.never | {("bob", 0), ("bob", 1)}, skills={"bob": ALL})
    ended = planned(questions(answers), able, None, 10.0)  # bob could, and would not: that is the end
    assert ended.stop == f"no annotator of the crew can answer any of the {ITEMS} items that are open"


def test_an_item_that_is_done_needs_nobody() -> None:
    """Item 0 needs what nobody has, and its truth is known: the project ends with the others."""
    answers = {("ann", item): 0 for item in range(1, ITEMS)}
    ((evidence, _),) = questions(answers)
    known = replace(evidence, truth=np.array([1] + [-1] * (ITEMS - 1), np.int32))
    plan = planned([(known, DawidSkene().fit(known))], Crew(("ann",), needs={0: ALL}), None, 10.0)
    assert plan.stop == f"no annotator of the crew can answer any of the {ITEMS - 1} items that are open"


def test_a_project_whose_other_questions_are_not_worth_it_goes_on_too() -> None:
    class Satisfied:
        def plan(self, known: Any, crew: Crew, budget: Budget) -> Plan:
            return Plan((), (), ITEMS, stop="no question that can be asked is worth its cost")

    def stop(crew: Crew) -> str | None:
        return next_plan(Satisfied(), questions(), crew, NEVER_DONE).stop

    assert stop(Crew(("ann",))) is not None
    assert stop(Crew(("ann",), needs={3: ALL})) is None
    assert stop(Crew(("ann",), needs={3: ALL}, skills={"ann": ALL})) is not None


def test_what_can_be_asked_is_asked_beside_it() -> None:
    crew = Crew(("ann",), needs={0: ALL})
    plan = planned(questions(), crew, None, 1.0)
    assert {ask.item for ask in plan.asks} == set(range(1, ITEMS))
    assert ExpectedGain().plan(questions(), crew, NEVER_DONE).asks


# -- projects ----------------------------------------------------------------------------------------------


def crewed(skill: str = "de", **crew: Any) -> Settings:
    """Dee has this skill, and items name theirs in the field `lang`."""
    limits = CrewSettings(annotators=("dee", "eve"), skill_field="lang", skills={"dee": (skill,)}, **crew)
    return settings().model_copy(update={"crew": limits})


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "hitl-output").rglob("*.csv"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nine items answered by three people, three by nobody; all are German."""
    rows = [f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}" for n in range(9) for who in ("ann", "bob", "cyd")]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (tmp_path / "items.csv").write_text("item,lang\n" + "".join(f"{n},de\n" for n in range(12)))
    return tmp_path


def test_a_typo_closes_nothing_on_the_platform_and_mended_it_is_as_if_it_had_not_been(folder: Path) -> None:
    right, wrong = crewed("de"), crewed("ed")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        before = cycle.run(right, store, Tables(folder), now=NOON).judgement
        shown = texts(folder)
        report = cycle.run(wrong, store, Tables(folder), now=NOON + 60)
        said = status_text(wrong, store, NOON + 60)
        plan = report.judgement.plan
        assert plan.stop is None
        wanted = {r.operation.kind: r.operation.payload for r in report.receipts}["labels_wanted"]["items"]
        assert set(wanted) == {done.item for done in plan.done}  # no open item is closed
        again = cycle.run(right, store, Tables(folder), now=NOON).judgement
        assert again.plan.asks == before.plan.asks
        assert texts(folder) == shown
    lack = next(line for line in said.splitlines() if "no annotator has" in line)
    assert "no annotator has the skills that 12 items need" in lack
    assert "'de'" in lack
    assert "the crew has 'ed'; `crew.skills`" in lack
    assert "he project is done" not in said


def test_status_names_what_is_left_aside_while_others_are_asked(folder: Path) -> None:
    (folder / "items.csv").write_text("item,lang\n9,it\n10,\n11,\n")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        metrics = cycle.run(crewed(), store, Tables(folder), now=NOON).judgement.metrics
        lines = outlook(metrics)
        assert metrics["idle"] is None
        assert any(
            line.startswith("Some items get no questions: no annotator has the skills that 1 item needs: 'it' (1)")
            for line in lines
        )
        (folder / "items.csv").write_text("item,lang\n9,\n10,\n11,\n")
        after = cycle.run(crewed(), store, Tables(folder), now=NOON + HOUR).judgement.metrics
    assert after["lacking"] is None
    assert not any("Some items get no" in line for line in outlook(after))


def test_another_reason_comes_first_where_others_could_be_asked(folder: Path) -> None:
    (folder / "items.csv").write_text("item,lang\n9,it\n10,\n11,\n")
    busy = crewed(capacity=0)
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        lines = outlook(cycle.run(busy, store, Tables(folder), now=NOON).judgement.metrics)
    assert [line.partition(": ")[0] for line in lines[-2:]] == ["No questions are sent", "Some items get no questions"]
    assert lines[-2].endswith("no annotator has any capacity (`crew.capacity`, `crew.capacities`).")


def test_when_all_the_others_are_answered_it_says_so(folder: Path) -> None:
    (folder / "items.csv").write_text("item,lang\n9,it\n")
    rows = [f"{n},{who},{(n + k) % 2}" for n in range(9) for k, who in enumerate(("dee", "eve"))]
    with (folder / "annotations.csv").open("a") as file:
        file.write("\n".join(rows) + "\n")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        judgement = cycle.run(crewed(), store, Tables(folder), now=NOON).judgement
    others = judgement.plan.open_items - 1
    assert judgement.plan.stop is None
    assert judgement.metrics["idle"].endswith(f"; everyone who may answer the other {others} open items has done so")
