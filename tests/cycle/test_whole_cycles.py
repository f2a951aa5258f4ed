"""A cycle as a whole: what it comes to, and that a crash anywhere changes nothing of it."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hitl import cycle, project, score
from hitl.active.stopping import rules
from hitl.connectors.tables import Tables, TablesSettings
from hitl.crew import skills_needed
from hitl.demo.recorded import QUESTION, RecordedPeople, rte
from hitl.doctor import checks
from hitl.errors import BadSettings, BadTable, Busy, LeaseLost, StoreError, Unreachable
from hitl.metrics import outlook
from hitl.operations import Judgement, operations_of
from hitl.settings import CrewSettings, Settings
from hitl.store import Store
from hitl.tables.align import by_question
from hitl.tables.read import read_table
from tests.command_line import forked
from tests.killing import EVERY, fatal_steps
from tests.projects import HOUR, NOON, answers, folder_with_tables, settings, state

KILLED = """
import os, signal, sys
from pathlib import Path
from hitl import cycle
from hitl.connectors import tables
from hitl.store import Store
from tests.projects import settings

tables.PAGE = 4
events = 0

def kill_at(what, done, total):
    global events
    events += 1
    if events == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
with Store(f"sqlite:///{folder}/hitl.db") as store:
    cycle.run(settings(), store, tables.Tables(folder), kill_at)
print(events)
"""


def run_until(folder: Path, event: int) -> subprocess.CompletedProcess[str]:
    return forked(KILLED, str(folder), str(event))


@EVERY
def test_a_kill_between_any_two_steps_then_run_ends_in_the_same_state(tmp_path: Path, every: int) -> None:
    whole = folder_with_tables(tmp_path / "whole")
    finished = run_until(whole, 0)
    assert finished.returncode == 0, finished.stderr
    events = int(finished.stdout)
    assert events > 8
    for event in fatal_steps(events, every):
        folder = folder_with_tables(tmp_path / f"killed-{event}")
        assert run_until(folder, event).returncode == -signal.SIGKILL
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            cycle.run(settings(), store, Tables(folder))
            assert store.pending("p") == []
        assert state(folder) == state(whole), f"killed at event {event}"


def test_a_cycle_asks_the_crew_within_capacity_and_closes_what_is_done(folder: Path, store: Store) -> None:
    report = cycle.run(settings(), store, Tables(folder))
    plan = report.judgement.plan
    assert len(plan.asks) == 6
    assert {len(plan.asks_of(name)) for name in ("dee", "eve")} <= {2, 3, 4}
    wanted = {r.operation.kind: r.operation.payload for r in report.receipts}["labels_wanted"]["items"]
    for ask in plan.asks:
        assert wanted[ask.item] == (4 if int(str(ask.item)) < 9 else 1)
    for done in plan.done:
        assert wanted[done.item] == 3
    assert report.judgement.metrics["labels"] == 27


def test_an_annotator_without_new_work_is_told_so(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder))
    assert (folder / "hitl-output/assignments/dee.csv").read_text().count("\n") > 1
    alone = settings().model_copy(update={"crew": settings().crew.model_copy(update={"annotators": ("eve",)})})
    cycle.run(alone, store, Tables(folder))
    assert (folder / "hitl-output/assignments/dee.csv").read_text().count("\n") == 1
    assert (folder / "hitl-output/assignments/eve.csv").read_text().count("\n") > 1


def test_two_cycles_at_once_are_refused(folder: Path) -> None:
    with (
        Store(f"sqlite:///{folder}/hitl.db") as store,
        store.lease("p"),
        pytest.raises(Busy, match="another run is in progress"),
    ):
        cycle.run(settings(), store, Tables(folder))
    assert state(folder) == {}


@pytest.mark.journey
def test_the_loop_reaches_the_accuracy_of_all_labels_with_little_more_than_half_of_them(tmp_path: Path) -> None:
    """Recorded people answer whoever is asked; the whole loop with the real store, to the end."""
    recorded = rte()
    people = RecordedPeople(recorded.annotations, {})
    rte_settings = Settings(
        name="rte",
        source=TablesSettings(path="."),
        budget={"open_questions": 200, "target_confidence": 0.9},  # type: ignore[arg-type]
        push={"consensus": False, "order": False, "labels_wanted": False},  # type: ignore[arg-type]
    )
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        for _ in range(60):
            before = people.spent
            judgement = cycle.run(rte_settings, store, people, crew=people.crew()).judgement
            if people.spent == before:
                break
        assert store.counts("rte")["annotations"] == people.spent
    truth = recorded.truth
    assert truth is not None
    assert len(judgement.plan.done) + len(judgement.plan.asks) == 800 or not judgement.plan.asks
    assert people.spent < 0.6 * len(recorded.annotations)
    assert score.accuracy(judgement.results[QUESTION].probabilities, truth) > 0.9
    assert np.isclose(judgement.metrics["labels"], people.spent)


def test_the_last_digits_of_a_fit_do_not_change_what_is_shown(folder: Path, store: Store) -> None:
    """Sums differ in the last bits from run to run; that must not push the consensus again."""
    judgement = cycle.run(settings(), store, Tables(folder)).judgement
    (name,) = judgement.results

    def shifted(by: float) -> Judgement:
        result = judgement.results[name]
        p = result.probabilities.copy()
        p[0] += by * np.where(np.arange(p.shape[1]) == result.codes[0], -1, 1)
        moved = dataclasses.replace(result, probabilities=p)
        return dataclasses.replace(judgement, results={name: moved})

    shown = {operation.kind: operation.digest for operation, _ in store.operations("p")}
    for by, same in ((1e-7, True), (1e-3, False)):
        *_, again = operations_of(settings().push, store, "p", shifted(by))
        assert (again.digest == shown["consensus"]) is same


# -- answers that come late ----------------------------------------------------------------------------------


def cycled(folder: Path, now: float, **changes: Any) -> Judgement:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        return cycle.run(settings(**changes), store, Tables(folder), now=now).judgement


def queue(folder: Path, name: str) -> list[str]:
    """What somebody is shown."""
    table = read_table(folder / f"hitl-output/assignments/{name}.csv")
    return [str(item) for item in table.column("item").to_pylist()]


def test_a_queue_does_not_jump_about_while_answers_come_in(folder: Path) -> None:
    first = cycled(folder, NOON).plan
    dee, eve = queue(folder, "dee"), queue(folder, "eve")
    assert len(dee) + len(eve) == 6
    answers(folder, (eve[-1], "eve", 1))  # out of order
    second = cycled(folder, NOON + HOUR).plan
    assert queue(folder, "dee")[: len(dee)] == dee
    assert queue(folder, "eve")[: len(eve) - 1] == eve[:-1]
    assert len(second.asks) == 6
    times = {(ask.annotator, ask.item): ask.since for ask in second.asks}
    assert all(times[ask.annotator, ask.item] == NOON for ask in first.asks_of("dee"))
    assert NOON + HOUR in times.values()


def test_a_question_expires_and_a_late_answer_still_counts(folder: Path) -> None:
    cycled(folder, NOON)
    dee = queue(folder, "dee")
    answers(folder, *((item, "eve", 1) for item in queue(folder, "eve")))
    cycled(folder, NOON + 23 * HOUR)
    assert queue(folder, "dee")[: len(dee)] == dee
    expired = cycled(folder, NOON + 25 * HOUR).plan
    assert {(entry.annotator, entry.item) for entry in expired.expired} == {("dee", item) for item in dee}
    assert not set(queue(folder, "dee")) & set(dee)
    assert len(queue(folder, "dee")) <= 1
    answers(folder, *((item, "dee", 1) for item in dee))
    late = cycled(folder, NOON + 50 * HOUR)
    (evidence,) = late.evidence.values()
    given = {(row["item"], row["annotator"]) for row in evidence.annotations.table().to_pylist()}
    assert {(item, "dee") for item in dee} <= given
    assert not {person.annotator for person in late.plan.people if person.away} & {"dee"}


def test_a_project_that_is_done_closes_what_it_had_opened(folder: Path, store: Store) -> None:
    cycled(folder, NOON)
    done = settings().model_copy(
        update={"budget": settings().budget.model_copy(update={"target_accuracy": 0.3, "target_confidence": 1.0})}
    )
    report = cycle.run(done, store, Tables(folder), now=NOON + HOUR)
    plan, metrics = report.judgement.plan, report.judgement.metrics
    assert plan.asks == ()
    assert plan.stop == metrics["stop"]
    assert "target: 30.0 %" in str(plan.stop)
    assert metrics["forecast"] is None
    wanted = {r.operation.kind: r.operation.payload for r in report.receipts}["labels_wanted"]["items"]
    assert set(wanted.values()) == {0, 3}  # as many as they have: closed
    assert queue(folder, "dee") == queue(folder, "eve") == []


def test_an_item_has_room_for_an_answer_of_whoever_may_still_have_it_open(folder: Path, store: Store) -> None:
    first = cycled(folder, NOON).plan
    report = cycle.run(settings(), store, Tables(folder), now=NOON + 25 * HOUR)
    labels = report.judgement.evidence["label"].annotations.labels_per_item
    rows = {str(name): n for n, name in enumerate(report.judgement.evidence["label"].annotations.items)}
    wanted = {op.kind: op.payload for op, _ in store.operations("p")}["labels_wanted"]["items"]
    plan = report.judgement.plan
    assert {(gone.item, gone.annotator) for gone in plan.expired} == {(ask.item, ask.annotator) for ask in first.asks}
    assert plan.asks
    for ask in plan.asks:  # both are away; one of them is asked again, the other may have it open
        assert wanted[str(ask.item)] == labels[rows[str(ask.item)]] + 2


def test_metrics_say_where_the_project_stands(folder: Path, store: Store) -> None:
    crew = settings().crew.model_copy(update={"cost": 2.0, "costs": {"ann": 0.5}})
    judgement = cycle.run(settings().model_copy(update={"crew": crew}), store, Tables(folder)).judgement
    kept = store.cycles("p")[-1].metrics
    metrics = judgement.metrics
    assert kept == json.loads(json.dumps(metrics))
    assert metrics["cost"] == 9 * 0.5 + 18 * 2.0
    assert sum(metrics["reasons"].values()) == metrics["done"]
    expected = rules.expected_accuracy([(judgement.evidence["label"], judgement.results["label"])])
    assert metrics["expected"]["accuracy"] == expected.accuracy
    assert metrics["forecast"]["labels"] > 0
    assert [line.split()[0] for line in outlook(metrics)][:2] == ["Believed", "Spent:"]


def test_why_a_cycle_failed_is_kept_until_one_does_not(folder: Path, store: Store) -> None:

    class Down(Tables):
        def __init__(self, error: Exception) -> None:
            super().__init__(folder)
            self.error = error

        def pull(self, cursor: Any) -> Any:
            raise self.error

    for error, kept in (
        (Unreachable("no answer"), ("Unreachable", "no answer")),
        (OSError("x" * 1000), ("OSError", "x" * 500)),
        (StoreError("disk full"), ("OSError", "x" * 500)),  # a store that fails cannot keep it
        (LeaseLost("overtaken"), ("OSError", "x" * 500)),
        (ZeroDivisionError("a bug"), ("ZeroDivisionError", "a bug")),  # its trace is where it happened
    ):
        with pytest.raises(type(error)):
            cycle.run(settings(), store, Down(error))
        failure = store.failure("p")
        assert failure is not None
        assert (failure.error, failure.message) == kept
        assert store.failure("other") is None
    with pytest.raises(Busy), store.lease("p"):
        cycle.run(settings(), store, Tables(folder))
    assert store.failure("p") == failure
    cycle.run(settings(), store, Tables(folder))
    assert store.failure("p") is None


def test_costs_skills_and_needs_reach_the_crew(folder: Path, store: Store) -> None:
    (folder / "items.csv").write_text("item,lang\n0,de\n1,\n2,fr\n")
    crew = {
        "annotators": ("dee", "eve"),
        "cost": 2.0,
        "costs": {"dee": 3.0},
        "skills": {"dee": ("de",)},
        "skill_field": "lang",
    }
    ours = settings().model_copy(update={"crew": CrewSettings(**crew)})  # type: ignore[arg-type]
    cycle.run(ours, store, Tables(folder))
    made = project.crew_of(ours, store)
    assert (made.cost_of("dee"), made.cost_of("eve")) == (3.0, 2.0)
    assert made.needs == {"0": frozenset({"de"}), "2": frozenset({"fr"})}
    assert made.skills == {"dee": frozenset({"de"})}


def test_needs_are_one_value_or_a_list() -> None:
    data = [{"lang": ["de", "fr"]}, {"lang": 7}, {"lang": []}, {"text": "x"}, {"lang": None}]
    table = pa.table({"item": ["a", "b", "c", "d", "e"], "data": [json.dumps(row) for row in data]})
    assert skills_needed(table, "lang") == {"a": frozenset({"de", "fr"}), "b": frozenset({"7"})}


def test_checks_are_kept_with_the_plan_and_nobody_who_answers_is_told(folder: Path, store: Store) -> None:
    """What is pushed does not tell them apart."""
    (folder / "truth.csv").write_text("item,label\n0,0\n1,1\n")
    ours = settings(policy={"options": {"gold_share": 0.5}})
    first = cycle.run(ours, store, Tables(folder), now=NOON).judgement
    checks = [ask.item for ask in first.plan.asks if ask.check]
    assert sorted(checks, key=str) == ["0", "1"]
    assert store.plan("p") == dataclasses.replace(first.plan, done=())
    assert cycle.run(ours, store, Tables(folder), now=NOON + HOUR).judgement.plan.asks == first.plan.asks
    plain = tuple(dataclasses.replace(ask, check=False, why="") for ask in first.plan.asks)
    hidden = dataclasses.replace(first, plan=dataclasses.replace(first.plan, asks=plain))
    pushed = [list(operations_of(ours.push, store, "p", one)) for one in (first, hidden)]
    assert pushed[0] == pushed[1]


def test_an_unknown_policy_or_option_names_its_key(folder: Path, store: Store) -> None:
    with pytest.raises(BadSettings, match=r"policy.name 'nonsense' is unknown; expected one of expected-gain"):
        cycle.run(settings(policy={"name": "nonsense"}), store, Tables(folder))
    with pytest.raises(
        BadSettings, match=r"'expected-gain' has no setting 'x'; it has information, .*max_load_ratio, audit_share$"
    ):
        cycle.run(settings(policy={"options": {"x": 1}}), store, Tables(folder))


# -- one name, two places ---------------------------------------------------------------------------------------


def test_two_projects_of_one_name_in_one_store_are_told_apart(tmp_path: Path) -> None:
    folders = [folder_with_tables(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        (folder / "hitl.toml").write_text(
            f'name = "pets"\nstore = "sqlite:///{tmp_path}/shared.db"\n[source]\nkind = "tables"\npath = "."\n'
        )
    first, second = (folder / "hitl.toml" for folder in folders)
    with project.opened(first) as (chosen, store, connector):
        cycle.run(chosen, store, connector)
    words = rf"a project 'pets' that was pulled from {folders[0]}, and this hitl.toml is for {folders[1]}; give one"
    with pytest.raises(BadSettings, match=words), project.opened(second):
        pass
    with Store(f"sqlite:///{tmp_path}/shared.db") as store, pytest.raises(BadSettings, match=words):
        cycle.run(chosen, store, Tables(folders[1]))
    assert not (folders[1] / "hitl-output").exists()
    with project.opened(second, full=True) as (chosen, store, connector), store.lease("pets") as lease:
        cycle.pull(lease, store, connector, full=True)
    with pytest.raises(BadSettings, match=f"pulled from {folders[1]}"), project.opened(first):
        pass


def test_a_folder_that_was_moved_is_still_the_same_project(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "here")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(settings(), store, Tables(folder))
    moved = folder.rename(tmp_path / "there")
    with Store(f"sqlite:///{moved}/hitl.db") as store:
        cycle.run(settings(), store, Tables(moved))
        assert store.source(settings().name) == str(moved)


# -- files of models in hitl.toml -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_a_model_of_hitl_toml_is_read_in_every_cycle(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "pets")
    head = 'name = "pets"\n[source]\nkind = "tables"\npath = "."\n[models]\nbert = "out/bert.csv"\n'
    (folder / "hitl.toml").write_text(head)
    (folder / "out").mkdir()
    rows = "".join(f"{n},{0.9 if n % 2 else 0.2},{0.1 if n % 2 else 0.8}\n" for n in range(10))
    (folder / "out" / "bert.csv").write_text(f"item,p_0,p_1\n{rows}other,0.5,0.5\n")
    with project.opened(folder / "hitl.toml") as (chosen, store, connector):
        report = cycle.run(chosen, store, connector)
        known = next(iter(report.judgement.evidence.values()))
        np.testing.assert_allclose(known.probabilities["bert"][3], [0.9, 0.1])
        assert int(known.predicted.sum()) == 10
        said = report.judgement.metrics["models"]["bert"]
        assert (said["items"], said["temperature"] > 0) == (10, True)
        text = "\n".join(outlook(report.judgement.metrics))
        assert "Model bert predicts 10 of 12 items" in text
        assert {check.name: check.ok for check in checks(folder / "hitl.toml")}["models"]
    (folder / "out" / "bert.csv").write_text("item,p_0,p_1\nx,0.5,0.5\n")
    found = {check.name: check for check in checks(folder / "hitl.toml")}["models"]
    assert not found.ok
    assert "none of its 1 item is among the 12 items of the project" in found.detail


def test_columns_of_a_model_say_which_question_they_are_about(tmp_path: Path) -> None:
    two = {"tone": ("good", "bad"), "place": ("here", "away")}
    ticks = {f"topics={name}": ("no", "yes") for name in ("art", "law")}
    path = tmp_path / "m.csv"
    path.write_text("item,p_here,p_away\na,0.25,0.75\n")
    assert by_question(path, {"a": "7"}, two)["place"].to_pylist() == [
        {"item": "7", "p_here": "0.25", "p_away": "0.75"}
    ]
    path.write_text("item,p_law\na,0.25\n")
    (found,) = by_question(path, {"a": "7"}, ticks).items()
    assert found[0] == "topics=law"
    assert (float(found[1]["p_yes"][0].as_py()), found[1]["p_no"][0].as_py()) == (0.25, 0.75)
    path.write_text("item,p_other\na,0.25\n")
    with pytest.raises(BadTable, match="fit no single question; there are tone: good, bad; place: here, away"):
        by_question(path, {"a": "7"}, two)
