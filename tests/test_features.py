"""Features of a project, through whole cycles over tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.evidence import Evidence
from hitl.settings import FeatureSettings, Settings
from hitl.store import Store
from tests.projects import folder_with_tables, settings

TOPICS = ("a storm at sea", "the price of bread", "goals in the final minute", "a new kind of battery")


def texts(count: int = 40) -> list[str]:
    """Texts in four topics, each with a word of its own."""
    return [f"{TOPICS[n % 4]}, told {'again ' * (n % 3)}by witness{n:02}" for n in range(count)]


def write_items(folder: Path, values: list[Any], column: str = "text") -> None:
    rows = "".join(f'{n},"{value}"\n' for n, value in enumerate(values))
    (folder / "items.csv").write_text(f"item,{column}\n{rows}")


def evidence_of(report: cycle.CycleReport) -> Evidence:
    return report.judgement.evidence["label"]


def run(folder: Path, **changes: Any) -> cycle.CycleReport:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        return cycle.run(settings(**changes), store, Tables(folder))


def features(**given: Any) -> dict[str, Any]:
    return {"features": FeatureSettings(**given)}


def test_texts_are_features_of_the_evidence_as_scikit_learn_makes_them(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, texts())
    evidence = evidence_of(run(folder, **features(text="text", dimensions=5)))
    expected = make_pipeline(TfidfVectorizer(), TruncatedSVD(5, random_state=0)).fit_transform(texts())
    order = [int(name) for name in evidence.annotations.items]
    np.testing.assert_allclose(evidence.features, expected[order], atol=1e-12)
    assert evidence_of(run(folder)).features is None


def test_a_diverse_policy_plans_with_them(tmp_path: Path) -> None:
    """Nobody has labeled the 36 new items, all equally good to ask about: four questions are about four topics."""
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, texts())
    changes = {"budget": {"labels": 4, "target_confidence": 0.97}, "crew": {}}
    options = {"policy": {"name": "expected-gain", "options": {"diverse": 40.0}}}

    def topics(**more: Any) -> list[int]:
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            made = Settings(name="p", source=settings().source, **changes, **more)
            plan = cycle.run(made, store, Tables(folder)).judgement.plan
        return sorted(int(ask.item) % 4 for ask in plan.asks)

    alike = topics()
    (folder / "hitl.db").unlink()
    assert topics(**options, **features(text="text", dimensions=4)) == [0, 1, 2, 3] != alike
