"""DBCC.paper() and EDBCC.paper() against eqs. 21 to 33 of Kim & Ghahramani 2012: weighed draws of the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import DBCC, EDBCC
from tests.oracles import Floats

pytestmark = pytest.mark.journey  # of tests.compile_kernels.LONG
SAID = np.array([[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]])
TRUTH = np.array([0, 1, 1, -1, -1])
DRAWS = 150_000


def printed(mean_v: float, hard: float = 1.0, mean_u: float = 0.0, sd: float = 3.0, sd_w: float = 3.0) -> Floats:
    """(N, J) posterior of two annotators and two classes, everything but the truths integrated by weighed draws."""
    rng = np.random.default_rng(0)
    v = rng.normal(0, sd, (DRAWS, 2, 2, 2)) + mean_v * np.eye(2)[:, None]  # eqs. 24, 32: class, annotator, answer
    w = rng.normal(0, sd_w, DRAWS)  # eq. 25, one a pair as in eq. 21
    u = rng.normal(0, 3.0, (DRAWS, 2, 2)) + mean_u * np.eye(2)  # eq. 33: class, answer
    p = rng.dirichlet([1.0, 1.0], DRAWS)  # eq. 9
    answers = [(a, b) for a in range(2) for b in range(2)]
    log_hard = {(a, b): v[:, :, 0, a] + v[:, :, 1, b] + w[:, None] * (a == b) for a, b in answers}  # eq. 21
    z_hard = sum(np.exp(value) for value in log_hard.values())
    log_easy = {(a, b): u[:, :, a] + u[:, :, b] for a, b in answers}  # eq. 29
    z_easy = sum(np.exp(value) for value in log_easy.values())
    joint_n = []
    for said, known in zip(SAID, TRUTH, strict=True):
        at = (int(said[0]), int(said[1]))
        joint = p * (hard * np.exp(log_hard[at]) / z_hard + (1 - hard) * np.exp(log_easy[at]) / z_easy)
        joint_n.append(joint * np.eye(2)[known] if known >= 0 else joint)
    weight = np.prod([joint.sum(axis=1) for joint in joint_n], axis=0)
    q = [weight @ (joint / joint.sum(axis=1, keepdims=True)) / weight.sum() for joint in joint_n]
    return np.array(q)


@pytest.mark.parametrize(
    ("method", "model"),
    [
        (DBCC.paper(), {"mean_v": 0.0}),
        (EDBCC.paper(), {"mean_v": np.log(0.85 / 0.15), "hard": 0.5, "mean_u": np.log(0.99 / 0.01)}),
    ],
    ids=["DBCC", "EDBCC"],
)
def test_the_papers_settings_are_its_model(method: Any, model: dict[str, float]) -> None:
    evidence = Evidence(Annotations.from_matrix(SAID), truth=TRUTH)
    found = replace(method, draws=4000).fit(evidence).probabilities
    expected = printed(**model)
    np.testing.assert_allclose(found, expected, atol=0.025)
    assert np.abs(printed(**{**model, "sd": 1.0, "sd_w": 0.5}) - expected).max() > 0.05  # the test can tell


def test_no_expected_accuracy_is_that_of_chance() -> None:
    rng = np.random.default_rng(1)
    evidence = Evidence(Annotations.from_matrix(rng.integers(3, size=(30, 3))), truth=rng.integers(-1, 3, size=30))
    none, chance = (DBCC(accuracy=accuracy, draws=50, burn_in=20).fit(evidence) for accuracy in (None, 1 / 3))
    np.testing.assert_allclose(none.probabilities, chance.probabilities, atol=1e-9)
