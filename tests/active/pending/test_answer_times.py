"""How long answers take, by medians, and that it is kept with the plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hitl.active.pending.annotators import FEWEST, seconds_per_answer, with_answer_times
from hitl.annotations import Annotations
from hitl.connectors.tables import Tables
from hitl.plan import Ask, Plan
from hitl.store import Store
from tests.command_line import Run


def timed(rows: list[tuple[str, int, float]]) -> Annotations:
    frame = pd.DataFrame({"annotator": [who for who, *_ in rows], "item": [item for _, item, _ in rows], "label": 0})
    frame["seconds"] = [seconds for *_, seconds in rows]
    return Annotations.from_frame(frame, classes=[0, 1], duration="seconds")


def test_each_has_the_median_of_their_own_times_and_newcomers_everybodys() -> None:
    rng = np.random.default_rng(4)
    rows = [("ann", n, float(rng.gamma(4, 5))) for n in range(9)] + [
        ("bob", n, float(rng.gamma(4, 20))) for n in range(6)
    ]
    rows += [("cyd", n, 900.0) for n in range(FEWEST - 1)] + [("dee", n, float("nan")) for n in range(9)]
    rows[3] = ("ann", 3, 7200.0)  # over lunch
    anybody, own = seconds_per_answer(timed(rows))
    known = sorted(seconds for *_, seconds in rows if seconds == seconds)
    assert anybody == pytest.approx(
        (known[len(known) // 2 - 1] + known[len(known) // 2]) / 2 if len(known) % 2 == 0 else known[len(known) // 2]
    )
    assert set(own) == {"ann", "bob"}
    assert own["ann"] == sorted(seconds for who, _, seconds in rows if who == "ann")[4]
    plan = Plan(tuple(Ask("x", who, 0.0, 0.5, "") for who in ("ann", "cyd", "dee", "new", None)))
    assert [ask.seconds for ask in with_answer_times(plan, timed(rows)).asks] == [
        own["ann"],
        anybody,
        anybody,
        anybody,
        anybody,
    ]
    assert (
        with_answer_times(with_answer_times(plan, timed(rows)), timed([("ann", 0, float("nan"))])) == plan
    )  # what is known now counts


def test_where_nobody_knows_the_plan_stays_as_it_is() -> None:
    plan = Plan((Ask("x", "ann", 0.0, 0.5, ""),))
    unknown = Annotations.from_matrix(np.array([[0, 1]]), classes=("a", "b"))
    assert seconds_per_answer(unknown) == (0.0, {})
    assert with_answer_times(plan, unknown) is plan
    assert with_answer_times(plan, timed([("ann", 0, 0.0)])) is plan


def test_run_plan_and_status_say_how_much_work_it_is(run: Run, tmp_path: Path) -> None:
    rows = [
        f"{n},{who},{('cat', 'dog')[(n + k) % 2]},{30 + 10 * k}"
        for n in range(6)
        for k, who in enumerate(("ann", "bob"))
    ]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label,duration", *rows]) + "\n")
    (tmp_path / "items.csv").write_text("item\n" + "".join(f"{n}\n" for n in range(30)))
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "."\n'
        '[crew]\nannotators = ["ann", "bob"]\ncapacity = 12\n'
    )
    expected = ("  ann: 12 questions, about 6 min", "  bob: 12 questions, about 8 min")
    for command in (("run", "--dry-run"), ("run",), ("plan",), ("status",)):
        if command == ("run", "--dry-run"):
            assert run("pull")[0] == 0
        code, out, _ = run(*command)
        assert code == 0
        assert "Waiting for answers: 24 questions for 2 annotators, about 14 min" in out
        for line in expected:
            assert line in out, command
    with Store(f"sqlite:///{tmp_path}/p.db") as store:
        plan = store.plan("p")
    assert plan is not None
    assert {ask.annotator: ask.seconds for ask in plan.asks} == {"ann": 30.0, "bob": 40.0}
    assert Tables(tmp_path).questions()
