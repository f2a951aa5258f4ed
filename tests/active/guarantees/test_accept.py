"""Items that a model labels alone: the list of `hitl models`, and a plan that asks nobody about them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hitl.cycle import judge
from hitl.errors import BadSettings
from hitl.project import stored, stored_evidence, stored_questions
from hitl.store import Store
from tests.command_line import Run

ITEMS, KNOWN = 400, 150


@pytest.fixture
def project(run: Run, tmp_path: Path) -> Path:
    """A model that is sure and right on 300 of 400 items, and undecided on the others; 150 drawn items are known."""
    rng = np.random.default_rng(0)
    truth = np.array(["cat", "dog"])[rng.integers(2, size=ITEMS)]
    sure = np.where(np.arange(ITEMS) < 300, 0.98, 0.55)
    cat = np.where(truth == "cat", sure, 1 - sure)
    cat[300:] = np.where(rng.random(100) < 0.5, cat[300:], 1 - cat[300:])
    names = [f"i{n}" for n in range(ITEMS)]
    pd.DataFrame({"item": names, "p_cat": cat, "p_dog": 1 - cat}).to_csv("probabilities_net.csv", index=False)
    known = np.sort(rng.choice(ITEMS, KNOWN, replace=False))
    pd.DataFrame({"item": np.array(names)[known], "label": truth[known]}).to_csv("truth.csv", index=False)
    rows = [(names[n], who, truth[n]) for n in range(296, 304) for who in ("ann", "bob")]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv("annotations.csv", index=False)
    pd.DataFrame({"item": names}).to_csv("items.csv", index=False)
    assert run("init", "--tables", ".", "--name", "p")[0] == 0
    settings = Path("hitl.toml").read_text().replace("open_questions = 100", "open_questions = 1000")
    Path("hitl.toml").write_text(settings)
    assert run("run")[0] == 0
    assert run("gold", "truth.csv")[0] == 0
    assert run("run")[0] == 0
    return tmp_path


def planned(folder: Path, run: Run) -> tuple[set[str], dict[str, str]]:
    """Items that are asked about, and item -> why it is done."""
    with Store(f"sqlite:///{folder}/.hitl/hitl.db") as store:
        plan = store.plan("p")
    assert plan is not None
    assert run("export", "labels.csv")[0] == 0
    labels = pd.read_csv("labels.csv", dtype=str)
    labels = labels[labels.done == "true"]
    return {str(ask.item) for ask in plan.asks}, dict(zip(labels.item, labels.why, strict=True))


def accept(path: str) -> None:
    text = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(text.replace("[budget]", f'[budget]\naccept = "{path}"', 1))


def test_nobody_is_asked_about_items_that_are_accepted(run: Run, project: Path) -> None:
    code, out, _ = run("models", "--error", "3%", "--skip-list", "skip.csv")
    assert code == 0, out
    skipped = pd.read_csv("skip.csv", dtype=str)
    known = set(pd.read_csv("truth.csv").item)
    fresh = set(skipped.item) - known
    assert len(fresh) > 100
    before, _ = planned(project, run)
    assert before & fresh
    accept("skip.csv")
    assert run("run")[0] == 0
    asked, done = planned(project, run)
    assert not asked & set(skipped.item)
    why = {done.get(item) for item in fresh}
    assert why == {"accepted without annotators"}
    assert asked

    liar = min(before & fresh)  # the consensus says otherwise: the item is asked about again, and the others stay
    skipped.loc[skipped.item == liar, "label"] = {"cat": "dog", "dog": "cat"}[skipped.set_index("item").label[liar]]
    skipped.to_csv("skip.csv", index=False)
    os.utime("skip.csv", (1, 1))
    assert run("run")[0] == 0
    asked, done = planned(project, run)
    assert liar not in done
    assert fresh - {liar} <= set(done)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "skip.csv"),
        ("item,label\ni1,cat\ni1,dog\n", "item 'i1' appears twice"),
        ("thing,label\ni1,cat\n", "item"),
    ],
)
def test_a_list_that_cannot_be_read_is_told_and_nothing_changes(
    run: Run, project: Path, text: str | None, said: str
) -> None:
    before = planned(project, run)
    if text is not None:
        Path("skip.csv").write_text(text)
    accept("skip.csv")
    code, _, err = run("run")
    assert code != 0
    assert said in err
    assert "Traceback" not in err
    assert planned(project, run) == before
    assert run("status")[0] == 0


@pytest.mark.parametrize("rows", ["", "i1,\n"])
def test_a_list_without_labels_accepts_nothing(run: Run, project: Path, rows: str) -> None:
    before = planned(project, run)  # `hitl models` writes an empty list while too little is known
    Path("skip.csv").write_text(f"item,label\n{rows}")
    accept("skip.csv")
    assert run("run")[0] == 0
    assert planned(project, run) == before


def test_accepted_labels_are_of_one_question(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("skip.csv").write_text("item,label\ni1,cat\n")
    accept("skip.csv")
    with stored(Path("hitl.toml")) as (settings, store):
        (question,) = stored_questions(settings, store)
        evidence = stored_evidence(settings, store, (question,))[question.name]
        monkeypatch.setattr("hitl.project.stored_evidence", lambda *given: {"a": evidence, "b": evidence})
        with pytest.raises(BadSettings, match="the project has several questions; expected one"):
            judge(settings, store, (question, question))
