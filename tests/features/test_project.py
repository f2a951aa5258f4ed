"""Features of a project, through whole cycles over tables."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.learning import features as project_features
from hitl.models.predictors.transforms import scaled
from hitl.settings import FeatureSettings, Settings
from hitl.store import Store
from tests.command_line import forked
from tests.projects import answers, folder_with_tables, settings, state

TOPICS = ("a storm at sea", "the price of bread", "goals in the final minute", "a new kind of battery")


def texts(count: int = 40) -> list[str]:
    """Texts in four topics, ten of each, each with a word of its own."""
    return [f"{TOPICS[n // 10]}, told {'again ' * (n % 3)}by witness{n:02}" for n in range(count)]


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
    """Nobody has labeled the new items, all equally good to ask about: four questions are about the four topics."""
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, texts())
    changes = {"budget": {"open_questions": 4, "target_confidence": 0.97}, "crew": {}}
    options = {"policy": {"name": "expected-gain", "options": {"diverse": 40.0}}}

    def topics(**more: Any) -> list[int]:
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            made = Settings(name="p", source=settings().source, **changes, **more)
            plan = cycle.run(made, store, Tables(folder)).judgement.plan
        return sorted(int(ask.item) // 10 for ask in plan.asks)

    assert len(set(topics())) < 4
    (folder / "hitl.db").unlink()
    assert topics(**options, **features(text="text", dimensions=4)) == [0, 1, 2, 3]


def test_an_item_without_text_is_named_and_has_no_features(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, ["", "?!", *texts(10)])
    report = run(folder, **features(text="text"))
    evidence = evidence_of(report)
    assert [name for name, has in zip(evidence.annotations.items, evidence.featured, strict=True) if not has] == [
        "0",
        "1",
    ]
    assert np.isnan(evidence.features[~evidence.featured]).all()
    told = "no features of 2 items ('0': 'text' is empty; '1': its text has no word of two or more letters)"
    assert report.pulled.problems == (told,)
    again = run(folder, **features(text="text"))
    assert again.pulled.problems == (told,)
    with pytest.raises(
        BadInput, match=r"'0': 'text' is empty.; with features.missing = .skip. the others are computed"
    ):
        run(folder, **features(text="text", missing="refuse"))
    write_items(folder, ["?!", *texts(11)])
    with pytest.raises(BadInput, match=r"no features of 1 item \('0': its text has no word.*\); with features.missing"):
        run(folder, **features(text="text", missing="refuse"))
    assert run(folder, **features(text="text")).pulled.problems != ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "texxt"}, "features.text: no item has the field 'texxt'; expected one of text; did you mean 'text'?"),
        ({"columns": ("text", "b")}, "features.columns: no item has the field 'b'; expected one of text"),
        ({"text": "text", "model": "nowhere:embed"}, "model nowhere: cannot be imported"),
        ({"text": "text", "model": "torchvision:resnet18"}, "model torchvision:resnet18: sees images"),
        ({"file": "absent.csv"}, "absent.csv: no such file"),
    ],
)
def test_features_that_cannot_be_made_say_why(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with pytest.raises((BadSettings, BadInput), match=message.replace("?", r"\?")):
        run(folder, **features(**given))


def test_no_item_with_features_is_an_error(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, ["", " "])
    with pytest.raises(BadInput, match=r"no features of 9 items \('0': 'text' is empty; '1': 'text' is empty; "):
        run(folder, **features(text="text"))
    write_items(folder, ["?", "!"])
    with pytest.raises(BadInput, match="none of the 2 texts has a word of two or more letters"):
        run(folder, **features(text="text"))


def test_columns_are_scaled_or_one_hot(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    kinds = ["red", "blue", "green"]
    rows = "".join(f"{n},{n * n},{kinds[n % 3]}\n" for n in range(12))
    (folder / "items.csv").write_text(f"item,size,colour\n{rows}12,,red\n")
    evidence = evidence_of(run(folder, **features(columns=("size", "colour"))))
    size = np.arange(12.0) ** 2
    x = dict(zip(evidence.annotations.items, evidence.features, strict=True))
    for n in range(12):
        hot = [float(kinds[n % 3] == name) for name in ("blue", "green", "red")]
        np.testing.assert_allclose(x[str(n)], [(size[n] - size.mean()) / size.std(), *hot])
    assert np.isnan(x["12"]).all()


def test_a_file_has_them_by_own_id(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    rows = np.random.default_rng(0).standard_normal((11, 6))
    np.savez(folder / "vgg.npz", items=np.arange(11), X=rows)
    report = run(folder, **features(file=str(folder / "vgg.npz")))
    evidence = evidence_of(report)
    x = dict(zip(evidence.annotations.items, evidence.features, strict=True))
    for n in range(11):
        assert x[str(n)].tolist() == rows[n].tolist()
    assert np.isnan(x["11"]).all()
    assert "no features of 1 item ('11': not in " in report.pulled.problems[0]
    fewer = evidence_of(run(folder, **features(file=str(folder / "vgg.npz"), dimensions=2))).features
    assert fewer is not None
    assert fewer.shape == (12, 2)
    centred = rows - rows.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.array([fewer[list(evidence.annotations.items).index(str(n))] for n in range(11)])
    np.testing.assert_allclose(np.abs(found), np.abs(u[:, :2] * s[:2]), atol=1e-9)
    np.savez(folder / "vgg.npz", items=np.arange(100, 111), X=rows)
    with pytest.raises(BadInput, match="none of its 11 items is among the 12 items of the project"):
        run(folder, **features(file=str(folder / "vgg.npz")))


def test_another_file_is_read_when_all_of_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped while it stores another file leaves the numbers of the first, and not some of both."""
    folder = folder_with_tables(tmp_path / "p")
    chosen = settings(**features(file=str(folder / "x.npz")))
    monkeypatch.setattr(project_features, "ROWS", 4)

    def write(value: float) -> None:
        np.savez(folder / "x.npz", items=np.arange(12), X=np.full((12, 2), value))

    def stop(what: str, done: int, total: int | None) -> None:
        if what == "embed" and done:
            raise KeyboardInterrupt

    def stored(store: Store) -> Any:
        found = project_features.stored_features(chosen, store, [str(n) for n in range(12)])
        return np.unique(found).tolist()  # type: ignore[arg-type]

    with Store(f"sqlite:///{folder}/hitl.db") as store:
        write(1.0)
        cycle.run(chosen, store, Tables(folder))
        write(2.0)
        with pytest.raises(KeyboardInterrupt):
            cycle.run(chosen, store, Tables(folder), stop)
        assert stored(store) == [1.0]
        cycle.run(chosen, store, Tables(folder))
        assert stored(store) == [2.0]


def test_a_broken_file_leaves_what_was_made_by_these_settings(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    for name in ("one.csv", "two.csv"):
        (folder / name).write_text("item,x\n" + "".join(f"{n},{n}\n" for n in range(12)))
    run(folder, **features(file=str(folder / "one.csv")))
    for name in ("one.csv", "two.csv"):
        (folder / name).write_text("item,x\n0,large\n")
    report = run(folder, **features(file=str(folder / "one.csv")))
    assert "not numeric" in report.pulled.problems[0]
    assert "those made before are used" in report.pulled.problems[0]
    assert evidence_of(report).featured.any()
    with pytest.raises(BadInput, match=r"two\.csv, column 'x': not numeric"):  # of this file none were made before
        run(folder, **features(file=str(folder / "two.csv")))


def test_a_column_of_empty_lists_is_one_of_categories() -> None:
    """It gave items no number, and `[learn]` a division by zero; a whole number beyond floats was an OverflowError."""
    assert scaled("none", [[], []]).tolist() == [[1.0], [1.0]]
    assert scaled("huge", [10**400, 1]).shape == (2, 2)


# -- made once -----------------------------------------------------------------------------------------------


EMBEDDER = """
from pathlib import Path
import numpy as np

def lengths(texts):
    with Path(__file__).with_suffix(".log").open("a") as log:
        log.write("".join(f"{text}\\n" for text in texts))
    return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float32)

def fails(texts):
    if any("again again" in text for text in texts):
        raise ValueError("too often")
    return np.ones((len(texts), 3))

def ragged(texts):
    return [[1.0] * len(text) for text in texts]
"""


def embedder(folder: Path, name: str = "lengths") -> dict[str, Any]:
    (folder / "mine.py").write_text(EMBEDDER)
    return features(text="text", model=f"{folder}/mine.py:{name}")


def seen(folder: Path) -> list[str]:
    """The texts that the embedder was given since the last look."""
    log = folder / "mine.log"
    found = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def test_what_is_new_or_changed_is_embedded_and_nothing_else(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    values = texts(12)
    write_items(folder, values)
    chosen = embedder(folder)
    evidence = evidence_of(run(folder, **chosen))
    assert seen(folder) == values
    assert [row[0] for row in evidence.features] == [len(values[int(name)]) for name in evidence.annotations.items]
    assert run(folder, **chosen).changed == 0
    answers(folder, (9, "ann", 1))
    assert evidence_of(run(folder, **chosen)).featured.all()
    assert seen(folder) == []
    values[3], values[5] = "changed", ""
    write_items(folder, [*values, "new"])
    evidence = evidence_of(run(folder, **chosen))
    assert seen(folder) == ["changed", "new"]
    x = dict(zip(evidence.annotations.items, evidence.features, strict=True))
    assert (x["3"].tolist(), x["12"].tolist()) == ([7.0, 1.0], [3.0, 0.0])
    assert np.isnan(x["5"]).all()
    (folder / "mine.py").write_text(EMBEDDER + "# of another version\n")
    run(folder, **chosen)
    assert len(seen(folder)) == 12


def test_what_an_embedder_of_a_user_does_wrong_is_known_by_item(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, texts(12))
    report = run(folder, **embedder(folder, "fails"))
    without = [n for n in range(12) if "again again" in texts(12)[n]]
    assert [
        int(name)
        for name, has in zip(evidence_of(report).annotations.items, evidence_of(report).featured, strict=True)
        if not has
    ] == without
    assert "('2': ValueError: too often; '5': ValueError: too often; " in report.pulled.problems[0]
    with pytest.raises(BadInput, match=r"no features of 12 items .*returns different numbers of values"):
        run(folder, **embedder(folder, "ragged"))


def test_judging_reads_what_is_stored_and_was_made_as_the_settings_say(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    write_items(folder, texts(12))
    chosen = settings(**features(text="text", dimensions=3))
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        made = evidence_of(cycle.run(chosen, store, Tables(folder))).features
        write_items(folder, texts(20))
        judged = cycle.judge(chosen, store, Tables(folder).questions()).evidence["label"]
        assert judged.features is not None
        assert np.array_equal(judged.features, made)
        other = settings(**features(text="text", dimensions=4))
        assert cycle.judge(other, store, Tables(folder).questions()).evidence["label"].features is None


KILLED = """
import os, signal, sys
from pathlib import Path
from hitl import cycle
from hitl.learning import features
from hitl.connectors.tables import Tables
from hitl.models.predictors import features as library
from hitl.settings import FeatureSettings
from hitl.store import Store
from tests.projects import settings

features.ROWS = 5
library.BATCH = 4
events = 0

def kill_at(what, done, total):
    global events
    events += what in ("embed", "features")
    if what in ("embed", "features") and events == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
chosen = FeatureSettings(text="text", model=f"{folder}/mine.py:lengths", dimensions=1)
with Store(f"sqlite:///{folder}/hitl.db") as store:
    cycle.run(settings(features=chosen), store, Tables(folder), kill_at)
print(events)
"""


@pytest.mark.journey
def test_a_kill_while_features_are_made_loses_no_batch_and_changes_nothing(tmp_path: Path) -> None:
    def run_until(folder: Path, event: int) -> subprocess.CompletedProcess[str]:
        return forked(KILLED, str(folder), str(event))

    def made(name: str) -> Path:
        folder = folder_with_tables(tmp_path / name)
        write_items(folder, texts(12))
        embedder(folder)
        return folder

    whole = made("whole")
    finished = run_until(whole, 0)
    assert finished.returncode == 0, finished.stderr
    events = int(finished.stdout)
    assert events == 7  # at the start, three batches of four items, twelve numbers in three parts
    for event in range(1, events + 1):
        folder = made(f"killed-{event}")
        assert run_until(folder, event).returncode == -signal.SIGKILL
        assert run_until(folder, 0).returncode == 0
        assert seen(folder) == texts(12), event
        assert state(folder) == state(whole)
