"""What makes the model learn anew though there are as many labels and items as before, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.store import Store
from tests.cycle.test_learning import folder_of, label, run, settings, store_of, text, topic, trainings

HEAD = "item,annotator,label\n"


def other(n: int) -> str:
    return "bread" if topic(n) == "sea" else "sea"


def relabel(folder: Path, edited: int) -> None:
    """The answers of 40 items, of which those of the first so many are the other class: as many as before."""
    (folder / "annotations.csv").write_text(HEAD)
    label(folder, range(edited), says=other)
    label(folder, range(edited, 40))


def write_features(folder: Path, seed: int, columns: int = 4) -> dict[str, Any]:
    """A file of features, which tells the topic by its first column."""
    rng = np.random.default_rng(seed)
    x_nd = rng.normal(scale=0.3, size=(120, columns))
    x_nd[:, 0] += [1.0 if topic(n) == "sea" else -1.0 for n in range(120)]
    np.savez(folder / "x.npz", items=np.array([str(n) for n in range(120)]), x=x_nd)
    return {"features": {"file": str(folder / "x.npz")}}


@pytest.mark.parametrize(("edited", "anew"), [(0, False), (4, False), (5, True), (40, True)])
def test_labels_that_were_edited(tmp_path: Path, edited: int, anew: bool) -> None:
    """80 labels, two an item: those of five items are more than a tenth."""
    folder = folder_of(tmp_path / "p", 40)
    first = run(folder).learned["label"]
    relabel(folder, edited)
    assert bool(run(folder).learned) == anew
    assert (trainings(folder)["label"].run != first.run) == anew
    assert trainings(folder)["label"].labels == 80


def test_labels_that_moved_to_other_items(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    first = run(folder).learned["label"]
    (folder / "annotations.csv").write_text(HEAD)
    label(folder, range(10, 50))
    assert run(folder).learned["label"].run != first.run


def test_annotators_who_changed_places(tmp_path: Path) -> None:
    """The labels of each item are as they were, but who gave which is not."""
    folder = folder_of(tmp_path / "p", 0)
    rows = [f"{n},{who},{topic(n) if who == 'ann' else other(n)}\n" for n in range(40) for who in ("ann", "bob")]
    more = "".join(f"{n},eve,{topic(n)}\n" for n in range(40))
    (folder / "annotations.csv").write_text(HEAD + "".join(rows) + more)
    first = run(folder).learned["label"]
    changed = [row.replace("ann", "?").replace("bob", "ann").replace("?", "bob") for row in rows]
    (folder / "annotations.csv").write_text(HEAD + "".join(changed) + more)
    assert run(folder).learned["label"].run != first.run


def test_another_file_of_features(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    changes = write_features(folder, 0)
    runs = [run(folder, **changes).learned["label"].run]
    assert run(folder, **changes).learned == {}
    for seed, columns in ((1, 4), (1, 6)):
        write_features(folder, seed, columns)
        runs.append(run(folder, **changes).learned["label"].run)
    assert len({*runs}) == 3


def test_texts_that_were_edited(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    run(folder)

    def edit(count: int) -> bool:
        rows = (f"{n},{text(n)}{' today' * (n < count)}\n" for n in range(120))
        (folder / "items.csv").write_text("item,text\n" + "".join(rows))
        return bool(run(folder).learned)

    assert [edit(12), edit(13), edit(13)] == [False, True, False]


MINE = """
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

def words():
    return make_pipeline(CountVectorizer(), LogisticRegression(C={}))
"""


def test_an_estimator_whose_code_was_edited(tmp_path: Path) -> None:
    """The next cycle learns by it, and `hitl learn` does not read what the old code had predicted."""
    folder = folder_of(tmp_path / "p", 40)
    changes = {"features": {}, "learn": {"model": f"{folder}/mine.py:words", "field": "text"}}
    (folder / "mine.py").write_text(MINE.format(1.0))
    before = run(folder, **changes).learned["label"]
    (folder / "mine.py").write_text(MINE.format(0.001))
    with store_of(folder) as store, store.lease("p") as lease:
        questions = Tables(folder).questions()
        assert cycle.learn(lease, settings(**changes), store, questions, force=True)["label"].run != before.run
    (folder / "mine.py").write_text(MINE.format(10.0))
    assert run(folder, **changes).learned
    (folder / "mine.py").unlink()  # what was learned stands where the code is not
    assert run(folder, **changes).judgement.evidence["label"].probabilities != {}


def test_a_model_of_features_whose_code_was_edited(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "p", 40)
    code = "def encode(texts):\n    return [[float('sea' in one) + len(one) % 7, {}] for one in texts]\n"
    for dimensions in (None, 1):
        changes = {"features": {"text": "text", "model": f"{folder}/mine.py:encode", "dimensions": dimensions}}
        for number in ("0.0", "1.0"):
            (folder / "mine.py").write_text(code.format(number))
            assert run(folder, **changes).learned
            assert run(folder, **changes).learned == {}


def test_features_of_one_more_item_are_others_but_what_items_hold_is_not(tmp_path: Path) -> None:
    """TF-IDF is learned on all texts: one more changes the numbers of all, and no model is learned for it."""
    folder = folder_of(tmp_path / "p", 40)
    run(folder)
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        space = store.features_note("p").space  # type: ignore[union-attr]
    with (folder / "items.csv").open("a") as file:
        file.write("120,storm tide\n")
    assert run(folder).learned == {}
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        assert store.features_note("p").space != space  # type: ignore[union-attr]
