"""A whole cycle over each database: the same plan, and nothing to do the second time."""

from __future__ import annotations

from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import Tables, TablesSettings
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store


def test_a_cycle_runs_over_this_database(store: Store, tmp_path: Path) -> None:
    rows = [f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}" for n in range(9) for who in ("ann", "bob", "cyd")]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (tmp_path / "items.csv").write_text("item,text\n9,nobody yet\n10,höchstens „eins“\n")
    settings = Settings(
        name="p",
        source=TablesSettings(path="."),
        crew=CrewSettings(annotators=("dee",)),
        budget=BudgetSettings(open_questions=5),
    )
    first = cycle.run(settings, store, Tables(tmp_path))
    plan = first.judgement.plan
    assert first.pulled.items == 11
    assert [ask.annotator for ask in plan.asks] == ["dee"] * 5
    assert {str(ask.item) for ask in plan.asks[:2]} == {"9", "10"}
    saved = store.latest("p")
    assert saved is not None
    results, stored_plan = saved
    assert stored_plan == plan
    assert (results["label"].probabilities == first.judgement.results["label"].probabilities).all()
    second = cycle.run(settings, store, Tables(tmp_path))
    assert (second.pulled.changed, second.changed, second.receipts) == (0, 0, ())
    assert second.judgement.plan.asks == plan.asks


def test_what_is_done_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    """Items, labels, confidence and reasons are columns of codes until they are stored."""
    rows = [f"{n},{who},{'yes' if n % 2 else 'no'}" for n in range(9) for who in ("ann", "bob", "cyd")[: 1 + n % 3]]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (tmp_path / "truth.csv").write_text("item,label\n0,no\n")
    settings = Settings(
        name="p", source=TablesSettings(path="."), budget=BudgetSettings(open_questions=5, max_labels=3)
    )
    judged = cycle.run(settings, store, Tables(tmp_path)).judgement
    latest = store.latest("p")
    assert latest is not None
    results, plan = latest
    assert [*plan.done] == [*judged.plan.done]
    assert {done.item: done.why for done in plan.done}["0"] == "its truth is known"
    assert {done.item: done.why for done in plan.done}["2"] in ("label limit reached", "confidence reached the target")
    assert results["label"].items == judged.results["label"].items
    assert all(type(done.item) is str and type(done.confidence) is float for done in plan.done)
