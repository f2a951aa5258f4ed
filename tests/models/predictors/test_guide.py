"""The guide's section on models tells the truth: its examples run, in order."""

from __future__ import annotations

import shlex
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hitl.tables.read import read_table
from tests.command_line import Run
from tests.docs.test_docs import blocks

MODELS = """
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


def make():
    return RandomForestClassifier(10, random_state=0)


def bag_of_words():
    return make_pipeline(TfidfVectorizer(), LogisticRegression())


def network():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
"""


def test_the_examples_run(run: Run, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    vision = pytest.importorskip("torchvision")
    from PIL import Image

    n = 12
    x = np.random.default_rng(0).normal(size=(n, 2))
    label = ["cat" if k % 2 else "dog" for k in range(n)]
    tables = {
        "items.csv": ["item,width,height", *(f"{k},{x[k, 0]},{x[k, 1]}" for k in range(n))],
        "texts.csv": ["item,text", *(f"{k},number {k} says {'meow' if k % 2 else 'woof'}" for k in range(n))],
        "photos.csv": ["item,path", "0,0.png", "1,1.png"],
        "truth.csv": ["item,label", *(f"{k},{label[k]}" for k in range(10))],
        "annotations.csv": ["item,annotator,label", *(f"{k},{who},{label[k]}" for k in range(n) for who in "ab")],
    }
    for name, lines in tables.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "my_models.py").write_text(MODELS)
    for k in range(2):
        Image.effect_noise((40, 40), 50).save(tmp_path / f"{k}.png")
    joblib.dump(LogisticRegression().fit(x, label), tmp_path / "clf.joblib")
    network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    torch.save(vision.models.squeezenet1_1(num_classes=2).state_dict(), tmp_path / "photos.pt")
    lines = [line for _, code in blocks("predict") for line in code.splitlines()]
    assert len(lines) == 6
    for line in lines:
        name, *arguments = shlex.split(line)
        assert name == "hitl"
        status, out, err = run(*arguments)
        assert (status, err) == (0, ""), f"{line}\n{out}\n{err}"
    text = read_table(tmp_path / "text.jsonl").to_pylist()
    assert all((row["p_cat"] > row["p_dog"]) == bool(int(row["item"]) % 2) for row in text)
    assert {row["fold"] for row in text} == {0, 1, 2, 3}
    assert read_table(tmp_path / "consensus.csv").num_rows == n
