"""What labels cannot decide is said, and known items decide it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.analysis.explanations import explanations
from hitl.models.default import DEPENDENCE, READINGS, DefaultCombiner
from tests.command_line import Run


def overlooked(items: int = 1500, labels: int = 3, recall: float = 0.5) -> Evidence:
    """Half of the items are defects, which annotators see in half of the cases."""
    rng = np.random.default_rng(4)
    truth = rng.integers(2, size=items).astype(np.int32)
    who = np.argsort(rng.random((items, 40)), axis=1)[:, :labels]
    said = np.where(rng.random((items, labels)) < np.where(truth, recall, 0.01)[:, None], 1, 0)
    item = np.repeat(np.arange(items), labels)
    frame = {"item": item, "annotator": who.ravel(), "label": np.array(["ok", "defect"])[said.ravel()]}
    annotations = Annotations.from_frame(frame, items=range(items), classes=["ok", "defect"])
    return Evidence(annotations, truth=truth)


def test_annotators_who_overlook_a_class_are_named_as_one_of_two_explanations() -> None:
    consensus = DefaultCombiner().fit(Evidence(overlooked().annotations))
    said = explanations(consensus)
    assert said is not None
    assert said.startswith("Two explanations fit these labels: annotators overlook 'defect', and then ")
    assert f"then {int(consensus.parameters[READINGS][0, 1]):,} items labeled 'ok' would be 'defect'" in said
    assert "Ground truth of 30 items drawn at random decides." in said


@pytest.mark.parametrize("seed", range(3))
def test_known_items_drawn_at_random_decide_for_the_explanation_that_holds(seed: int) -> None:
    """The optimum with true parameters is .92."""
    evidence = overlooked()
    assert evidence.truth is not None
    told = np.full(1500, -1, np.int32)
    shown = np.random.default_rng(seed).choice(1500, 30, replace=False)
    told[shown] = evidence.truth[shown]
    found = DefaultCombiner().fit(replace(evidence, truth=told))
    assert (found.codes == evidence.truth)[told < 0].mean() > 0.9
    bare = DefaultCombiner().fit(Evidence(evidence.annotations))
    assert found.parameters[DEPENDENCE][2] < bare.parameters[DEPENDENCE][2]  # against shared errors


@pytest.mark.parametrize("weight", [0.01, 0.99])
def test_a_decided_explanation_is_not_mentioned(weight: float) -> None:
    consensus = DefaultCombiner().fit(Evidence(overlooked().annotations))
    chance, excess, _ = consensus.parameters[DEPENDENCE]
    decided = {**consensus.parameters, DEPENDENCE: np.array([chance, excess, weight])}
    assert explanations(replace(consensus, parameters=decided)) is None


def test_annotators_who_know_all_classes_need_no_explanation() -> None:
    evidence = overlooked(recall=0.95, labels=5)
    assert explanations(DefaultCombiner().fit(Evidence(evidence.annotations))) is None


def test_combine_and_doctor_say_so(run: Run) -> None:
    annotations = overlooked().annotations
    rows = zip(annotations.item, annotations.annotator, annotations.label, strict=True)
    text = "".join(f"{n},{k},{annotations.classes[label]}\n" for n, k, label in rows)
    with open("annotations.csv", "w") as file:
        file.write("item,annotator,label\n" + text)
    code, out, _ = run("combine", "annotations.csv")
    assert code == 0
    assert "annotators overlook 'defect'" in " ".join(out.split())
    assert run("init", "--tables", ".", "--name", "parts")[0] == 0
    assert run("run")[0] == 0
    code, out, _ = run("doctor")
    said = " ".join(out.split())
    assert (code, "labels of label: Two explanations fit these labels: annotators overlook 'defect'" in said) == (
        0,
        True,
    )
    assert "-> `hitl gold FILE` with the right answers to 30 items drawn at random" in said
