"""Audits over whole cycles: what is drawn is kept, and its answers are compared with the labels that stood."""

from __future__ import annotations

import json
from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.doctor import checks
from hitl.metrics import outlook
from hitl.settings import BudgetSettings
from hitl.store import Store
from tests.projects import HOUR, NOON, answers, folder_with_tables, settings


def test_answers_about_items_drawn_at_random_are_compared_with_the_labels_that_stood(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    ours = settings(policy={"options": {"audit_share": 0.5}})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        first = cycle.run(ours, store, Tables(folder), now=NOON).judgement
        drawn = [ask for ask in first.plan.asks if ask.audit]
        assert first.metrics["audit"] is None
        assert [ask.probability for ask in drawn] == [3 / 12] * 3
        label = first.results["label"]
        stood = {ask.item: label.classes[label.codes[label.items.index(ask.item)]] for ask in drawn}
        said = {drawn[0].item: stood[drawn[0].item], drawn[1].item: "1" if stood[drawn[1].item] == "0" else "0"}
        answers(folder, *((ask.item, str(ask.annotator), int(said[ask.item])) for ask in drawn[:2]))
        later = cycle.run(ours, store, Tables(folder), now=NOON + HOUR).judgement
        rows = store.audits("p").to_pylist()
    assert [(row["item"], row["annotator"], row["since"], row["cycle"]) for row in rows[:3]] == [
        (ask.item, ask.annotator, NOON, 1) for ask in drawn
    ]
    assert [json.loads(row["labels"]) for row in rows[:3]] == [{"label": stood[ask.item]} for ask in drawn]
    audit = later.metrics["audit"]
    assert (audit["drawn"], audit["answered"], audit["share"]) == (3, 2, 0.5)
    (line,) = [line for line in outlook(later.metrics) if line.startswith("Audit: ")]
    assert "Audit: 2 of 3" in line
    assert "agree with such answers on about 50.0 % of all items" in line
    assert not [line for line in outlook(first.metrics) if line.startswith("Audit: ")]


def test_a_done_item_that_is_drawn_is_opened_for_one_more_answer(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    ours = settings(policy={"options": {"audit_share": 0.9}})
    ours = ours.model_copy(update={"budget": BudgetSettings(open_questions=6, target_confidence=0.7)})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        report = cycle.run(ours, store, Tables(folder), now=NOON)
    plan = report.judgement.plan
    drawn = {done.item for done in plan.done} & {ask.item for ask in plan.asks}
    assert drawn
    wanted = {r.operation.kind: r.operation.payload for r in report.receipts}["labels_wanted"]["items"]
    assert {item: wanted[item] for item in drawn} == dict.fromkeys(drawn, 4)  # after three


def test_doctor_says_where_audits_cannot_be(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    text = 'name = "p"\n[source]\nkind = "tables"\npath = "."\n[policy]\noptions = { audit_share = 0.1 }\n'
    for crew, ok in (("", False), ('[crew]\nannotators = ["ann"]\n', True)):
        (folder / "hitl.toml").write_text(text + crew)
        found = {check.name: check for check in checks(folder / "hitl.toml")}
        assert found["policy"].ok == ok
        assert ("crew.annotators" in found["policy"].fix) == (not ok)
