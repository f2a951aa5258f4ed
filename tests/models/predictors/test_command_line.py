"""`hitl predict`: from a model and a table to a probability file that `hitl combine` takes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hitl.errors import BadInput
from hitl.tables.read import read_table
from tests.command_line import Run

MODELS = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

def logistic():
    return LogisticRegression(C=2.0)

def broken():
    raise RuntimeError("no such luck")

class Memory(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = {tuple(row): label for row, label in zip(np.asarray(X).tolist(), y)}
        return self
    def predict_proba(self, X):
        flat = np.full(len(self.classes_), 1 / len(self.classes_))
        return np.array([np.where(self.classes_ == self.seen_[tuple(r)], 1.0, 0.0) if tuple(r) in self.seen_ else flat
                         for r in np.asarray(X).tolist()])
"""
NETWORK = """
import torch

def scores():
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        module.bias.zero_()
    return module
"""
N = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    y = np.where(x[:, 0] + 0.3 * rng.normal(size=N) > 0, "cat", "dog")
    lines = [f"i{n},{x[n, 0]},{x[n, 1]},{'even' if n % 2 == 0 else ''}" for n in range(N)]
    (tmp_path / "items.csv").write_text("item,a,b,twin\n" + "\n".join(lines) + "\n")
    (tmp_path / "truth.csv").write_text("item,label\n" + "".join(f"i{n},{y[n]}\n" for n in range(40)))
    joblib.dump(LogisticRegression().fit(x, y), tmp_path / "clf.joblib")
    (tmp_path / "mine.py").write_text(MODELS)
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def columns(path: Path, *names: str) -> np.ndarray:  # type: ignore[type-arg]
    table = read_table(path)
    return np.column_stack([np.array(table.column(name).to_pylist(), dtype=float) for name in names])


FEATURES = ["--features", "a,b"]


def test_a_pickled_estimator_needs_trust(run: Run, folder: Path) -> None:
    (folder / "evil.pkl").write_bytes(pickle.dumps(Trap()))
    for name in ("evil.pkl", "clf.joblib"):
        code, out, err = run("predict", "items.csv", "-m", name, *FEATURES, "-o", "p.csv")
        assert code == 78
        assert "loading a pickle can run any code" in err
        assert "sprung" not in out + err
    code, out, err = run("predict", "items.csv", "-m", "clf.joblib", "--trust", *FEATURES, "-o", "p.csv")
    assert (code, err) == (0, "")
    assert "predicted 60 items (2 classes)" in out
    model = joblib.load(folder / "clf.joblib")
    expected = model.predict_proba(columns(folder / "items.csv", "a", "b"))
    np.testing.assert_allclose(columns(folder / "p.csv", "p_cat", "p_dog"), expected, rtol=1e-12)
    assert read_table("p.csv").column_names == ["item", "p_cat", "p_dog"]
    assert not (folder / ".p.csv.part").exists()


class Trap:
    def __reduce__(self) -> object:
        return (print, ("sprung",))


def test_what_is_predicted_can_be_combined(run: Run, folder: Path) -> None:
    flags = ["-m", "mine.py:logistic", "--folds", "4", "--truth", "truth.csv", *FEATURES, "-o", "p.parquet", "--json"]
    code, out, err = run("predict", "items.csv", *flags)
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["items"], said["silent"], said["resumed"], said["classes"]) == (60, 0, 0, ["cat", "dog"])
    assert (said["warnings"], said["training_seconds"] > 0) == ([], True)
    fold = columns(folder / "p.parquet", "fold")[:, 0]
    assert np.bincount(fold.astype(int)).tolist() == [20, 10, 10, 10, 10]
    (folder / "people.csv").write_text("item,annotator,label\n" + "".join(f"i{n},ann,cat\n" for n in range(50)))
    flags = ["--probabilities", "net=p.parquet", "--truth", "truth.csv", "--method", "pl", "--output", "c.csv"]
    assert run("combine", "people.csv", *flags)[0] == 0
    assert read_table("c.csv").num_rows == 60


def test_labels_may_come_from_a_consensus(run: Run, folder: Path) -> None:
    people = "".join(f"i{n},{who},{'cat' if n % 3 else 'dog'}\n" for n in range(30) for who in ("ann", "bob"))
    (folder / "people.csv").write_text("item,annotator,label\n" + people)
    assert run("combine", "people.csv", "--save", "c.npz", "--output", "c.csv")[0] == 0
    for truth in ("c.npz", "c.csv"):
        flags = ["--folds", "3", "--truth", truth, *FEATURES, "-o", f"{truth}.csv"]
        assert run("predict", "items.csv", "-m", "mine:logistic", *flags)[0] == 0
    assert (folder / "c.npz.csv").read_bytes() == (folder / "c.csv.csv").read_bytes()


def test_groups_share_a_fold(run: Run, folder: Path) -> None:
    flags = ["--folds", "3", "--truth", "truth.csv", "--groups", "twin", "-o", "p.csv"]
    assert run("predict", "items.csv", "-m", "mine:logistic", *flags)[0] == 0  # the group is no feature
    fold = columns(folder / "p.csv", "fold")[:, 0]
    assert len(set(fold[::2])) == 1  # all even ones, labeled or not
    assert set(fold[1:40:2]) == {1, 2, 3} - set(fold[::2])
    assert set(fold[41::2]) == {0}


def test_the_same_input_in_two_folds_is_warned_of(run: Run, folder: Path) -> None:
    lines = (folder / "items.csv").read_text().splitlines()
    same = [lines[0], *(f"i{n},1.0,2.0," for n in range(10)), *lines[11:]]
    (folder / "items.csv").write_text("\n".join(same) + "\n")
    flags = ["--folds", "2", "--truth", "truth.csv", *FEATURES, "-o", "p.csv"]
    code, _, err = run("predict", "items.csv", "-m", "mine:logistic", *flags)
    assert code == 0
    assert "10 labeled items have the very input of one in another fold" in err


def test_numbered_classes_are_named(run: Run, folder: Path) -> None:
    x = columns(folder / "items.csv", "a", "b")
    joblib.dump(LogisticRegression().fit(x, (x[:, 0] > 0).astype(int)), folder / "codes.joblib")
    flags = ["-m", "codes.joblib", "--trust", *FEATURES, "-o", "p.csv"]
    assert run("predict", "items.csv", *flags)[0] == 0
    assert read_table("p.csv").column_names == ["item", "p_0", "p_1"]
    (folder / "names.txt").write_text("no, never\nyes\n")
    assert run("predict", "items.csv", *flags, "--classes", "names.txt")[0] == 0
    assert read_table("p.csv").column_names == ["item", "p_no, never", "p_yes"]
    code, _, err = run("predict", "items.csv", *flags, "--classes", "a,b,c")
    assert (code, "--classes a, b, c: the model knows 0, 1" in err) == (78, True)


def test_features_are_found_by_the_names_the_model_was_fitted_on(run: Run, folder: Path) -> None:
    import pandas as pd

    frame = pd.read_csv(folder / "items.csv")[["b", "a"]]
    model = LogisticRegression().fit(frame, np.where(frame["a"] > 0, "cat", "dog"))
    joblib.dump(model, folder / "named.joblib")
    assert run("predict", "items.csv", "-m", "named.joblib", "--trust", *FEATURES, "-o", "p.csv")[0] == 0
    np.testing.assert_allclose(columns(folder / "p.csv", "p_cat", "p_dog"), model.predict_proba(frame), rtol=1e-12)
    flags = ["--trust", "--features", "a", "-o", "p.csv"]
    code, _, err = run("predict", "items.csv", "-m", "named.joblib", *flags)
    assert (code, "fitted on a feature 'b'; found a" in err) == (65, True)


def test_the_fingerprint_follows_model_inputs_and_settings(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hitl.models.predictors import running

    seen: list[str] = []
    monkeypatch.setattr(running, "predict", lambda inputs, predictor, output, fingerprint, **_: stop(seen, fingerprint))
    clf = ["-m", "clf.joblib", "--trust", *FEATURES]
    folds = ["-m", "mine:logistic", "--folds", "2", "--truth", "truth.csv", *FEATURES]
    for flags in (
        clf,
        [*clf, "--batch-size", "7"],
        [*clf[:3], "--features", "b,a"],
        folds,
        folds,
        [*folds, "--seed", "1"],
        [*folds, "--groups", "twin"],
    ):
        assert run("predict", "items.csv", *flags, "-o", "p.csv")[0] == 65
    x = columns(folder / "items.csv", "a", "b")
    joblib.dump(LogisticRegression(C=0.1).fit(x, x[:, 0] > 0), folder / "clf.joblib")
    run("predict", "items.csv", *clf, "-o", "p.csv")
    (folder / "truth.csv").write_text((folder / "truth.csv").read_text() + "i41,cat\n")
    run("predict", "items.csv", *folds, "-o", "p.csv")
    one, smaller_batches, other_features, folded, again, other_seed, grouped, other_model, more_truth = seen
    assert one == smaller_batches
    assert folded == again
    assert len({one, other_features, folded, other_seed, grouped, other_model, more_truth}) == 7


def stop(seen: list[str], fingerprint: str) -> None:
    seen.append(fingerprint)
    raise BadInput("stopped by the test")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["-m", "clf.joblib", "--trust", "-o", "items.csv"], 65, "named twice"),
        (["-m", "gone.joblib", "--trust", "-o", "p.csv"], 78, "gone.joblib: no such file"),
        (["-m", "items.pkl", "--trust", "-o", "p.csv"], 65, "cannot be read as a pickled model"),
        (["-m", "clf", "-o", "p.csv"], 78, "expected a file (.joblib, .pkl, .pickle), package.module:callable"),
        (["-m", "nowhere:model", "-o", "p.csv"], 78, "cannot be imported: ModuleNotFoundError"),
        (["-m", "gone.py:model", "-o", "p.csv"], 78, "gone.py: no such file"),
        (["-m", "mine:model", "-o", "p.csv"], 78, "mine has no 'model'"),
        (["-m", "mine:broken", "-o", "p.csv"], 78, "broken(): RuntimeError: no such luck"),
        (["-m", "mine:logistic", "-o", "p.csv"], 78, "LogisticRegression is not fitted"),
        (["-m", "mine:MODELS", "-o", "p.csv"], 78, "no predict_proba"),
        (["-m", "torchvision:resnet18", "-o", "p.csv"], 78, "untrained; name a file with --weights"),
        (["-m", "mine:logistic", "--folds", "3", "-o", "p.csv"], 78, "--folds and --truth need each other"),
        (["-m", "mine:logistic", "--groups", "twin", "-o", "p.csv"], 78, "--groups needs --folds"),
        (["-m", "clf.joblib", "--trust", "--image", "a", "-o", "p.csv"], 78, "expected a torch model"),
        (["-m", "clf.joblib", "--trust", "--text", "a", "--image", "b", "-o", "p.csv"], 78, "exclude each other"),
        (["-m", "clf.joblib", "--trust", "--features", "a,z", "-o", "p.csv"], 65, "no column 'z'"),
        (["-m", "clf.joblib", "--trust", "-o", "p.csv"], 65, "column 'twin'"),
        (["-m", "clf.joblib", "--trust", "--features", "a", "-o", "p.csv"], 65, "ValueError: X has 1 features"),
        (["-m", "clf.joblib", "--trust", "-o", "no/p.csv"], 65, "does not exist"),
        (["-m", "clf.joblib", "--trust", "-o", "p.xls"], 65, "p.xls: expected a file name that ends in one of .csv"),
        (
            ["-m", "mine:logistic", "--folds", "2", "--truth", "empty.csv", "-o", "p.csv", *FEATURES],
            65,
            "none of its 1",
        ),
    ],
)
def test_bad_input_is_a_clear_error_and_writes_nothing(
    run: Run, folder: Path, flags: list[str], code: int, message: str
) -> None:
    (folder / "mine.py").write_text(MODELS + "\nMODELS = object()\n")
    (folder / "items.pkl").write_text("item,a\n")
    (folder / "empty.csv").write_text("item,label\nelse,cat\n")
    import sys

    sys.modules.pop("mine", None)
    found, _, err = run("predict", "items.csv", *flags)
    assert message in err
    assert found == code
    assert not (folder / "p.csv").exists()


# -- torch -----------------------------------------------------------------------------------------------------


def test_a_torch_module_from_a_factory(run: Run, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    flags = ["-m", "net.py:scores", *FEATURES, "--device", "cpu", "-o", "p.jsonl"]
    code, _, err = run("predict", "items.csv", *flags)
    assert (code, "--classes: a torch model does not name its outputs" in err) == (78, True)
    assert run("predict", "items.csv", *flags, "--classes", "cat,dog")[0] == 0
    x = columns(folder / "items.csv", "a", "b")
    shares = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(columns(folder / "p.jsonl", "p_cat", "p_dog"), shares, atol=1e-6)
    torch.save({"weight": torch.zeros(2, 2), "bias": torch.tensor([0.0, 1.0])}, folder / "w.pt")
    assert run("predict", "items.csv", *flags, "--classes", "cat,dog", "--weights", "w.pt")[0] == 0
    np.testing.assert_allclose(columns(folder / "p.jsonl", "p_dog"), 1 / (1 + np.exp(-1)), atol=1e-6)
    code, _, err = run("predict", "items.csv", *flags, "--folds", "2", "--truth", "truth.csv")
    assert (code, "trains only scikit-learn estimators" in err) == (78, True)


def test_images_of_a_torchvision_model(run: Run, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision.models")
    from PIL import Image

    (folder / "photos").mkdir()
    for name in ("a", "b"):
        Image.effect_noise((50, 40), 60).save(folder / "photos" / f"{name}.png")
    (folder / "photos" / "c.png").write_text("no picture")
    (folder / "photos.csv").write_text("item,path\na,a.png\nb,b.png\nc,c.png\n")
    torch.manual_seed(0)
    model = models.get_model("squeezenet1_1", num_classes=2)
    torch.nn.init.constant_(model.classifier[1].bias, 0.1)  # its last layer is cut at zero; .5 of each class else
    torch.save(model.state_dict(), folder / "w.pt")
    flags = ["--image", "path", "--image-folder", "photos", "-m", "torchvision:squeezenet1_1", "--weights", "w.pt"]
    flags += ["--classes", "cat,dog", "--device", "cpu", "-o", "p.csv"]
    code, out, err = run("predict", "photos.csv", *flags)
    assert code == 0
    assert "1 items skipped" in out
    assert "1 images cannot be read; their items have no probabilities (photos/c.png)" in err
    first = columns(folder / "p.csv", "p_cat", "p_dog")
    np.testing.assert_allclose(first[:2].sum(axis=1), 1)
    assert np.isnan(first[2]).all()
    (folder / "small.py").write_text(
        "from torchvision import transforms as t\n"
        "def make():\n    return t.Compose([t.Resize((32, 32)), t.ToTensor()])\n"
    )
    assert run("predict", "photos.csv", *flags, "--transforms", "small.py:make")[0] == 0
    assert not np.allclose(columns(folder / "p.csv", "p_cat", "p_dog")[:2], first[:2])
    assert run("predict", "photos.csv", *flags, "--transforms", "SqueezeNet1_1_Weights.IMAGENET1K_V1")[0] == 0
    np.testing.assert_allclose(columns(folder / "p.csv", "p_cat", "p_dog")[:2], first[:2])


def test_a_column_of_labels_is_not_trained_on(run: Run, folder: Path) -> None:
    truth = read_table("truth.csv").column("label").to_pylist()
    rows = "\n".join(f"{n},{n % 3},{len(str(label))}" for n, label in enumerate(truth))
    (folder / "both.csv").write_text("item,x,label\n" + rows + "\n")
    code, _, err = run(
        "predict", "both.csv", "-m", "mine.py:logistic", "--folds", "2", "--truth", "both.csv", "-o", "o.csv"
    )
    assert code != 0
    assert "has a column 'label'" in err
    assert not (folder / "o.csv").exists()


def test_the_items_of_a_project_are_judged_and_its_cycles_use_it(run: Run, folder: Path) -> None:
    labels = "".join(f"i{n},{who},cat\n" for n in range(5) for who in ("ann", "bob"))
    (folder / "annotations.csv").write_text("item,annotator,label\n" + labels)
    (folder / "truth.csv").write_text("item,label\ni9,dog\n")
    flags = ["predict", "--project", "-m", "clf.joblib", "--trust", *FEATURES, "-o", "net.csv"]
    assert run("init", "--tables", ".", "--name", "pets")[0] == 0
    code, _, err = run(*flags)
    assert (code, err) == (78, "hitl: predict: project 'pets' has no items; run `hitl pull` first\n")
    assert run("pull")[0] == 0
    code, out, err = run(*flags)
    assert (code, err) == (0, "")
    assert 'to use it in every run, add to hitl.toml, in its section [models]:\n"net" = "net.csv"\n' in out
    assert read_table(folder / "net.csv").num_rows == N
    with (folder / "hitl.toml").open("a") as file:
        file.write("\n[models]\nnet = 'net.csv'\n")
    assert run("run")[0] == 0
    assert "Model net predicts 60 of 60 items" in run("status")[1]
    assert "expected either a table of items or --project" in run("predict", "-m", "clf.joblib", "-o", "p.csv")[2]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--budget", "nan"], 2, "'--budget'"),
        (["--budget", "inf"], 2, "'--budget': inf is not finite"),
        (["--price", "1", "nan"], 2, "'--price': nan is not finite"),
        (["--timeout", "inf"], 2, "'--timeout': inf is not finite"),
        (["--classes", "cat,cat"], 78, "'cat' appears twice in cat, cat; expected different names"),
        (["--classes", "classes.txt"], 78, "'dog' appears twice in dog, cat, dog; expected different names"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(
    run: Run, folder: Path, flags: list[str], code: int, message: str
) -> None:
    (folder / "classes.txt").write_text("dog\ncat\ndog\n")
    found, _, err = run("predict", "items.csv", "-m", "clf.joblib", "--trust", *FEATURES, "-o", "net.csv", *flags)
    assert (found, message in err) == (code, True), err
