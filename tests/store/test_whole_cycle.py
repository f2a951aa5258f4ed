"""A whole cycle over each database: the same plan, and nothing to do the second time."""

from __future__ import annotations

from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import Tables, TablesSettings
from hitl.settings import BudgetSettings, Settings
from hitl.store import Store


def test_what_is_done_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    """Items, labels, confidence and reasons are columns of codes until they are stored."""
    rows = [f"{n},{who},{'yes' if n % 2 else 'no'}" for n in range(9) for who in ("ann", "bob", "cyd")[: 1 + n % 3]]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (tmp_path / "truth.csv").write_text("item,label\n0,no\n")
    settings = Settings(
        name="p", source=TablesSettings(path="."), budget=BudgetSettings(open_questions=5, max_labels=3)
    )
    judged = cycle.run(settings, store, Tables(tmp_path)).judgement
    again = cycle.run(settings, store, Tables(tmp_path))
    assert (again.pulled.changed, again.changed, again.receipts) == (0, 0, ())
    assert again.judgement.plan.asks == judged.plan.asks
    latest = store.latest("p")
    assert latest is not None
    results, plan = latest
    assert [*plan.done] == [*judged.plan.done]
    assert {done.item: done.why for done in plan.done}["0"] == "ground truth is known"
    assert {done.item: done.why for done in plan.done}["2"] in ("label limit reached", "confidence reached the target")
    assert (results["label"].probabilities == judged.results["label"].probabilities).all()
    assert results["label"].items == judged.results["label"].items
    assert all(type(done.item) is str and type(done.confidence) is float for done in plan.done)
