"""A model that learns in the loop: whole cycles over tables, from texts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hitl import cycle
from hitl.connectors.tables import Tables, TablesSettings
from hitl.errors import BadSettings
from hitl.models import DefaultCombiner
from hitl.models.learning.learned import NAME
from hitl.settings import Settings
from hitl.store import Store
from tests.command_line import caller

WORDS = {"sea": "storm sail harbour tide wind", "bread": "flour oven loaf crust yeast"}
PROJECT: dict[str, Any] = {
    "budget": {"open_questions": 20, "target_confidence": 0.97},
    "features": {"text": "text", "dimensions": 8},
    "learn": {"model": "logistic"},
}


def settings(**changes: Any) -> Settings:
    return Settings(name="p", source=TablesSettings(path="."), **PROJECT | changes)


def topic(n: int) -> str:
    return "sea" if n % 2 else "bread"


def text(n: int) -> str:
    words = WORDS[topic(n)].split()
    return f"{words[n % 5]} {words[(n + n // 5) % 5]} and day {n % 7}"


def folder_of(path: Path, labeled: int, items: int = 120) -> Path:
    """Items of two topics; the first so many have two labels each."""
    path.mkdir()
    (path / "items.csv").write_text("item,text\n" + "".join(f"{n},{text(n)}\n" for n in range(items)))
    (path / "annotations.csv").write_text("item,annotator,label\n")
    label(path, range(labeled))
    return path


def label(folder: Path, items: Any, says: Any = topic) -> None:
    with (folder / "annotations.csv").open("a") as file:
        file.write("".join(f"{n},{who},{says(n)}\n" for n in items for who in ("ann", "bob")))


def store_of(folder: Path) -> Store:
    return Store(f"sqlite:///{folder}/hitl.db")


def run(folder: Path, **changes: Any) -> cycle.CycleReport:
    with store_of(folder) as store:
        return cycle.run(settings(**changes), store, Tables(folder))


def trainings(folder: Path) -> Any:
    with store_of(folder) as store:
        return store.trainings("p")


def test_what_is_learned_joins_the_consensus_of_the_same_cycle(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    report = run(folder)
    evidence, consensus = report.judgement.evidence["label"], report.judgement.results["label"]
    assert list(consensus.temperatures) == [NAME]
    right = np.array([topic(int(item)) for item in evidence.annotations.items])
    names = np.array(consensus.classes)
    assert np.mean(names[consensus.codes] == right) > 0.9  # 80 of 120 items have no label
    alone = DefaultCombiner().fit(replace(evidence, probabilities={}, features=None))
    assert np.mean(names[alone.codes] == right) < 0.7


def test_items_that_come_after_a_training_are_predicted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    run(folder)
    first = trainings(folder)["label"].run
    with (folder / "items.csv").open("a") as file:
        file.write("120,storm tide\n")
    assert run(folder).learned == {}, "one more of 120 waits for others"
    with (folder / "items.csv").open("a") as file:
        file.write("".join(f"{n},{text(n)}\n" for n in range(121, 140)))
    report = run(folder)
    assert trainings(folder)["label"].run != first
    evidence, consensus = report.judgement.evidence["label"], report.judgement.results["label"]
    new = [row for row, item in enumerate(evidence.annotations.items) if int(item) > 120]
    assert evidence.predicted[new].all()
    assert consensus.confidence[new].mean() > 0.6


def test_it_begins_with_no_label_at_all(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 0)
    (folder / "annotations.csv").write_text("item,annotator,label\n0,ann,sea\n1,ann,bread\n")
    report = run(folder)
    assert report.judgement.results["label"].temperatures == {}
    assert len(report.judgement.plan.asks) == 20


def test_what_is_asked_first_is_of_all_kinds_however_items_are_sorted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 0)
    order = sorted(range(120), key=topic)
    (folder / "items.csv").write_text("item,text\n" + "".join(f"{n},{text(n)}\n" for n in order))
    (folder / "truth.csv").write_text("item,label\n0,bread\n1,sea\n")
    asked = [topic(int(ask.item)) for ask in run(folder, learn={}).judgement.plan.asks]
    assert 4 <= asked.count("sea") <= 16
    assert {topic(int(ask.item)) for ask in run(folder, learn={}, features={}).judgement.plan.asks} == {"bread"}


def test_it_learns_anew_when_labels_have_grown_enough(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)  # 80 labels
    begun = run(folder)
    first = trainings(folder)["label"]
    assert (first.labels, first.items) == (80, 40)
    assert begun.learned == {"label": first}
    label(folder, range(40, 44))  # 88: not more than a tenth more
    again = run(folder)
    assert trainings(folder)["label"] == first
    assert again.learned == {}
    predicted = again.judgement.evidence["label"].probabilities[NAME]
    assert not np.isnan(predicted).any()
    label(folder, range(44, 45))
    run(folder)
    assert trainings(folder)["label"].labels == 90


def test_a_training_stands_while_annotators_alone_see_one_class(tmp_path: Path) -> None:
    """Few labels by unequal annotators may look like one class to the people's consensus; what was learned is kept."""
    folder = folder_of(tmp_path / "p", 40)
    run(folder)
    first = trainings(folder)["label"]
    (folder / "annotations.csv").write_text("item,annotator,label\n")
    label(folder, range(60), says=lambda n: "sea")
    with (folder / "annotations.csv").open("a") as file:
        file.write("0,cat,bread\n0,dan,sea\n0,eve,sea\n")
    report = run(folder)
    assert report.learned == {}
    assert trainings(folder) == {"label": first}


def test_an_item_that_is_labeled_after_the_training_keeps_its_prediction(tmp_path: Path) -> None:
    """It did not learn from it, so that the prediction stands beside the label as any model's does."""
    folder = folder_of(tmp_path / "p", 40)
    before = run(folder).judgement.evidence["label"]
    label(folder, [50], says=lambda n: "sea")
    after = run(folder).judgement.evidence["label"]
    row = after.annotations.items.index("50")
    np.testing.assert_array_equal(
        after.probabilities[NAME][row], before.probabilities[NAME][before.annotations.items.index("50")]
    )


def test_a_class_that_nobody_had_seen(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    run(folder)
    label(folder, [41, 43], says=lambda n: "soup")
    report = run(folder)
    evidence = report.judgement.evidence["label"]
    assert evidence.annotations.classes == ("bread", "sea", "soup")
    assert evidence.probabilities[NAME].shape == (120, 3)
    np.testing.assert_allclose(evidence.probabilities[NAME].sum(axis=1), 1)


def test_labels_that_are_noise_leave_annotators_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 0)
    rng = np.random.default_rng(0)
    said = {n: topic(int(rng.integers(2))) for n in range(60)}
    label(folder, said, says=said.get)
    assert run(folder).judgement.results["label"].temperatures == {}
    assert not trainings(folder)["label"].informs
    run(folder)  # and it is not tried again before there is more


def test_a_near_duplicate_does_not_tell_the_label_of_another(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    rows = "".join(f"{n},{text(n)},day {n // 4}\n" for n in range(120))
    (folder / "items.csv").write_text("item,text,day\n" + rows)
    with store_of(folder) as store:
        made = settings(learn={"model": "logistic", "groups": "day"})
        cycle.run(made, store, Tables(folder))
        run_id = store.trainings("p")["label"].run
        folds = {
            item: fold
            for fold, table in store.predicted("p", "label", run_id).items()
            for item in table.column("item").to_pylist()
        }
    for day in range(30):
        assert len({folds[str(n)] for n in range(4 * day, 4 * day + 4)}) == 1
    with pytest.raises(BadSettings, match=r"learn\.groups: no item has the field 'week'; expected one of text, day"):
        run(folder, learn={"model": "logistic", "groups": "week"})


ESTIMATOR = """
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

def words():
    return make_pipeline(CountVectorizer(), LogisticRegression())
"""


def test_an_estimator_of_ones_own_learns_from_a_field_as_it_is(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    (folder / "mine.py").write_text(ESTIMATOR)
    with (folder / "items.csv").open("a") as file:
        file.write("120,\n")
    learning = {"model": f"{folder}/mine.py:words", "field": "text"}
    evidence = run(folder, features={}, learn=learning).judgement.evidence["label"]
    right = np.array([topic(int(item)) == "sea" for item in evidence.annotations.items[:120]])
    p_n = evidence.probabilities[NAME][:, evidence.annotations.classes.index("sea")]
    assert np.mean((p_n[:120] > 0.5) == right) > 0.95
    assert np.isnan(p_n[120])  # it has no text
    first = trainings(folder)["label"]
    (folder / "items.csv").write_text((folder / "items.csv").read_text().replace("120,", "120,storm"))
    label(folder, range(40, 60))
    run(folder, features={}, learn=learning)
    assert trainings(folder)["label"].run != first.run
    with pytest.raises(BadSettings, match=r"learn\.field: no item has the field 'txt'; expected one of text"):
        run(folder, features={}, learn=learning | {"field": "txt"})
    with pytest.raises(ValidationError, match=r"it is for an estimator of yours"):
        settings(learn={"model": "logistic", "field": "text"})


def test_it_needs_features(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"learn\.model needs features of the items; expected \[features\]"):
        run(folder_of(tmp_path / "p", 40), features={})


KILLED = """
import os, signal, sys
from pathlib import Path
from hitl.store import Store
from tests.cycle.test_learning import run
save, left = Store.save_predicted, [int(sys.argv[2])]
def saved(*arguments):
    save(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Store.save_predicted = saved
run(Path(sys.argv[1]))
"""


def test_a_training_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when three folds are saved: the next cycle trains the other three, and ends as if nothing had been."""
    expected = run(folder_of(tmp_path / "whole", 40)).judgement.results["label"]
    folder = folder_of(tmp_path / "p", 40)
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), "3"], cwd=root, env={**os.environ}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert trainings(folder) == {}
    saved: list[int] = []
    save = Store.save_predicted
    monkeypatch.setattr(Store, "save_predicted", lambda *given: (saved.append(given[4]), save(*given))[1])
    found = run(folder).judgement.results["label"]
    assert len(saved) == 3
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


TOML = """
name = "p"
[source]
kind = "tables"
path = "."
[features]
text = "text"
dimensions = 8
"""


def test_doctor_says_when_it_would_pay_and_learn_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path / "p", 40)
    run = caller(folder, monkeypatch, capfd)
    (folder / "hitl.toml").write_text(TOML)
    assert run("run")[0] == 0
    assert "label: a model would learn from the features: [learn]" in run("doctor")[1]
    code, _, err = run("learn")
    assert code == 78
    assert 'learn.model: nothing learns; expected [learn] with model = "logistic"' in err
    (folder / "hitl.toml").write_text(TOML + '[learn]\nmodel = "logistic"\n')
    assert "logistic: not trained yet" in run("doctor")[1]
    code, out, err = run("learn")
    assert code == 0, err
    assert "label: trained on 40 items; agrees with annotators on" in out
    assert "label: logistic, from 40 items, agrees with annotators on" in run("doctor")[1]
    label(folder, range(40, 80))
    assert "label: trained on 80 items; agrees" in run("run")[1]
    assert "label: learned from" not in run("run")[1]
    assert json.loads(run("learn", "--json")[1])["label"]["items"] == 80
    (folder / "hitl.toml").write_text(TOML.partition("[features]")[0] + '[learn]\nmodel = "logistic"\n')
    code, out, _ = run("doctor")
    assert code != 0
    assert "learn.model 'logistic' has no features to learn from" in out


def test_what_was_learned_between_two_cycles_is_judged(tmp_path: Path) -> None:
    """As by `hitl learn`: nothing else has changed, and the last cycle does not stand."""
    folder, chosen = folder_of(tmp_path / "p", 20), settings(learn={"model": "logistic", "growth": 3.0})
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run_if_changed(chosen, store, Tables(folder), now=1.7e9)
        label(folder, range(20, 70))
        cycle.run_if_changed(chosen, store, Tables(folder), now=1.7e9)
        assert isinstance(cycle.run_if_changed(chosen, store, Tables(folder), now=1.7e9), cycle.Unchanged)
        with store.lease("p") as lease:
            learned = cycle.learn(lease, chosen, store, Tables(folder).questions(), force=True)
        assert {name: one.labels for name, one in learned.items()} == {"label": 140}
        report = cycle.run_if_changed(chosen, store, Tables(folder), now=1.7e9)
        assert isinstance(report, cycle.CycleReport)
        assert isinstance(cycle.run_if_changed(chosen, store, Tables(folder), now=1.7e9), cycle.Unchanged)
