"""What every calibrator must do, whatever its mathematics."""

from __future__ import annotations

import numpy as np
import pytest

from hitl import score
from hitl.errors import BadEvidence
from hitl.models import calibration
from hitl.models.calibration import (
    BayesianTemperature,
    Calibrator,
    DirichletCalibration,
    EnsembleTemperature,
    IMax,
    IsotonicCalibration,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from tests.miscalibrated import bent, honest

CALIBRATORS: dict[str, Calibrator] = {
    "temperature": TemperatureScaling(),
    "temperature, maximum likelihood": TemperatureScaling(None),
    "bayesian temperature": BayesianTemperature(),
    "ensemble": EnsembleTemperature(),
    "ensemble, maximum likelihood": EnsembleTemperature(None),
    "imax": IMax(),
    "imax by class": IMax(shared=False),
    "vector": VectorScaling(),
    "matrix": MatrixScaling(),
    "dirichlet": DirichletCalibration(),
    "isotonic": IsotonicCalibration(),
}
KEEP_THE_FIRST = ("temperature", "bayesian temperature", "ensemble", "imax")
every = pytest.mark.parametrize("calibrator", CALIBRATORS.values(), ids=CALIBRATORS)


def test_every_calibrator_is_among_them() -> None:
    no_calibrator = {"Calibration", "Calibrator", "LogTemperature"}
    assert {type(c).__name__ for c in CALIBRATORS.values()} == set(calibration.__all__) - no_calibrator
    for name in calibration.__all__:
        assert getattr(calibration, name).__name__ == name
    with pytest.raises(AttributeError, match="Nothing"):
        calibration.Nothing  # noqa: B018


@every
@pytest.mark.parametrize("classes", [2, 9])
@pytest.mark.parametrize("n", [1, 90])
def test_sure_models_missing_classes_and_single_items_give_distributions(
    calibrator: Calibrator, classes: int, n: int
) -> None:
    """Probabilities of exactly 0 and 1, right and wrong; only two classes are ever the truth."""
    rng = np.random.default_rng(n)
    p = np.where(rng.random((n, 1)) < 0.5, np.eye(classes)[rng.integers(classes, size=n)], 1 / classes)
    c = calibrator.fit(p, rng.integers(2, size=n)).apply(np.vstack([np.eye(classes), p]))
    assert c.shape == (classes + n, classes)
    assert (c >= 0).all()
    np.testing.assert_allclose(c.sum(axis=1), 1)


@every
def test_a_silent_row_teaches_nothing_and_stays_silent(calibrator: Calibrator) -> None:
    p, truth = honest(np.random.default_rng(1), 80, 3)
    with_silence = p.copy()
    with_silence[::4] = np.nan
    fitted = calibrator.fit(with_silence, truth)
    expected = calibrator.fit(np.delete(p, np.s_[::4], axis=0), np.delete(truth, np.s_[::4]))
    applied = fitted.apply(with_silence)
    assert np.isnan(applied[::4]).all()
    spoken = ~np.isnan(with_silence[:, 0])
    np.testing.assert_allclose(applied[spoken], expected.apply(p[spoken]))
    assert np.isnan(fitted.apply(np.full((2, 3), np.nan))).all()
    assert fitted.apply(np.empty((0, 3))).shape == (0, 3)


@every
def test_unknown_truths_teach_nothing(calibrator: Calibrator) -> None:
    p, truth = honest(np.random.default_rng(2), 80, 3)
    known = np.arange(80) % 3 > 0
    soft = np.where(known[:, None], np.eye(3)[truth], 0.0)
    expected = calibrator.fit(p[known], truth[known]).apply(p)
    np.testing.assert_allclose(calibrator.fit(p, np.where(known, truth, -1)).apply(p), expected)
    np.testing.assert_allclose(calibrator.fit(p, soft).apply(p), expected)


@every
def test_soft_labels_count_like_so_many_items(calibrator: Calibrator) -> None:
    """A row of soft labels (2, 1, 0) is three items of the same probabilities: two of class 0, one of class 1."""
    rng = np.random.default_rng(3)
    p, _ = honest(rng, 60, 3)
    times = rng.multinomial(3, [0.5, 0.3, 0.2], size=60)
    row, code = np.repeat(np.arange(60), 3), np.concatenate([np.repeat(np.arange(3), t) for t in times])
    expected = calibrator.fit(p[row], code).apply(p)
    np.testing.assert_allclose(calibrator.fit(p, times.astype(float)).apply(p), expected, atol=2e-4)


@every
def test_order_of_items_and_names_of_classes_do_not_matter(calibrator: Calibrator) -> None:
    rng = np.random.default_rng(4)
    p, truth = honest(rng, 300, 4)
    p = bent(p, 2.0, np.array([1.0, 0, 0, -1]))
    order, other = rng.permutation(300), np.array([2, 0, 3, 1])
    expected = calibrator.fit(p, truth).apply(p)
    np.testing.assert_allclose(calibrator.fit(p[order], truth[order]).apply(p), expected, atol=2e-4)
    renamed = calibrator.fit(p[:, other], np.argsort(other)[truth]).apply(p[:, other])
    np.testing.assert_allclose(renamed, expected[:, other], atol=2e-4)


@every
def test_an_over_confident_model_is_brought_back(calibrator: Calibrator) -> None:
    p, truth = honest(np.random.default_rng(5), 8000, 4)
    sharp = bent(p, 3.0)
    c = calibrator.fit(sharp[:4000], truth[:4000]).apply(sharp[4000:])
    held_out = truth[4000:]
    assert score.calibration_error(sharp[4000:], held_out) > 0.1
    assert score.calibration_error(c, held_out) < 0.03
    best = score.log_loss(p[4000:], held_out)
    assert score.log_loss(sharp[4000:], held_out) > best + 0.2
    assert score.log_loss(c, held_out) < best + 0.03


@pytest.mark.parametrize("name", KEEP_THE_FIRST)
def test_the_order_of_the_classes_stays(name: str) -> None:
    p, truth = honest(np.random.default_rng(7), 400, 5)
    p = bent(p, 3.0)
    c = CALIBRATORS[name].fit(p, truth).apply(p)
    assert (c.argmax(axis=1) == p.argmax(axis=1)).all()
    assert score.accuracy(c, truth) == score.accuracy(p, truth)
    ranked = np.take_along_axis(c, p.argsort(axis=1), axis=1)
    assert (np.diff(ranked, axis=1) >= -1e-12).all()


@every
def test_beliefs_calibrate_as_truth_does(calibrator: Calibrator) -> None:
    """Soft labels that are themselves honest: the expected objective is the one of the truth."""
    rng = np.random.default_rng(8)
    p, truth = honest(rng, 8_000, 3)
    sharp = bent(p, 2.5)
    by_truth, by_belief = calibrator.fit(sharp, truth).apply(sharp), calibrator.fit(sharp, p).apply(sharp)
    assert np.abs(by_truth - by_belief).mean() < 0.015


@every
def test_what_cannot_be_calibrated_is_an_error_that_says_where(calibrator: Calibrator) -> None:
    p, truth = honest(np.random.default_rng(9), 5, 3)
    wrong = p.copy()
    wrong[3, 0] = 2
    with pytest.raises(BadEvidence, match="row 3"):
        calibrator.fit(wrong, truth)
    with pytest.raises(BadEvidence, match="row 1 is 3; expected -1 <= code < 3"):
        calibrator.fit(p, np.array([0, 3, 0, 0, 0]))
    with pytest.raises(BadEvidence, match="soft labels of at least 0"):
        calibrator.fit(p, p - 1)
    with pytest.raises(BadEvidence, match=r"expected \(5,\) class codes or \(5, 3\) soft labels"):
        calibrator.fit(p, truth[:4])
    with pytest.raises(BadEvidence, match="class codes"):
        calibrator.fit(p, truth.astype(float))
    with pytest.raises(BadEvidence, match="found none"):
        calibrator.fit(p, np.full(5, -1))
    with pytest.raises(BadEvidence, match=r"expected shape \(N, J > 1\)"):
        calibrator.fit(p[:, :1], truth)
    with pytest.raises(BadEvidence, match="row 0"):
        calibrator.fit(p, truth).apply(np.array([[np.nan, 0.5, 0.5]]))


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "isotonic", "imax"])
def test_a_calibration_is_of_its_classes(name: str) -> None:
    fitted = CALIBRATORS[name].fit(*honest(np.random.default_rng(10), 5, 3))
    with pytest.raises(BadEvidence, match=r"expected shape \(N, 3\)"):
        fitted.apply(np.full((2, 4), 0.25))
