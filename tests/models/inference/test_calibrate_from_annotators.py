"""Calibration without truth: people's labels stand in for it."""

from __future__ import annotations

import numpy as np
import pytest

from hitl import score
from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.calibration import Calibrator, IMax, TemperatureScaling, VectorScaling
from hitl.models.calibration.temperature_scaling import Temperature
from hitl.models.inference.calibrate_from_annotators import CalibrateFromAnnotators
from tests.miscalibrated import bent, honest


def labeled(rng: np.random.Generator, slope: float, n: int = 1500) -> tuple[Evidence, np.ndarray]:
    """Three people, right in 80 %, and a model that is sure beyond reason; the last third has no labels."""
    p, truth = honest(rng, n, 4)
    said = np.where(rng.random((n, 3)) < 0.8, truth[:, None], rng.integers(4, size=(n, 3)))
    said[n * 2 // 3 :] = -1
    names = tuple("abcd")
    annotations = Annotations.from_matrix(said, classes=names)
    return Evidence(annotations, {"net": bent(p, slope)}), truth


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), VectorScaling(), IMax()])
@pytest.mark.parametrize("slope", [3.0, 6.0])
def test_people_calibrate_a_model_nearly_as_well_as_the_truth(calibrator: Calibrator, slope: float) -> None:
    evidence, truth = labeled(np.random.default_rng(1), slope)
    p = evidence.probabilities["net"]
    by_truth = calibrator.fit(p[:1000], truth[:1000]).apply(p[1000:])
    by_people = CalibrateFromAnnotators(calibrator).fit(evidence, "net").apply(p[1000:])
    raw = score.log_loss(p[1000:], truth[1000:])
    told, untold = (score.log_loss(c, truth[1000:]) for c in (by_truth, by_people))
    assert untold < told + 0.1 * (raw - told)


def test_known_truths_are_believed_and_items_without_labels_teach_nothing() -> None:
    evidence, truth = labeled(np.random.default_rng(2), 3.0)
    p = evidence.probabilities["net"]
    known = np.where(np.arange(1500) < 1000, truth, -1)
    told = CalibrateFromAnnotators(TemperatureScaling()).fit(
        Evidence(evidence.annotations, evidence.probabilities, truth=known), "net"
    )
    assert isinstance(told, Temperature)
    assert told.temperature == pytest.approx(TemperatureScaling().fit(p[:1000], truth[:1000]).temperature, rel=1e-3)


def test_a_model_that_is_not_there_is_an_error() -> None:
    evidence, _ = labeled(np.random.default_rng(4), 2.0, 30)
    with pytest.raises(BadEvidence, match="'other' are to be calibrated; found net"):
        CalibrateFromAnnotators(TemperatureScaling()).fit(evidence, "other")
