"""Every calibrator on CIFAR-10H: the model alone, and with one human label an image (Kerrigan 2021, section 5).

    python -m tests.bench.bench_calibration [--models resnet-110 ...] [--splits 25] [--save]

Protocol as in bench_pl: each image's labels are shuffled once with a fixed seed and the first is taken; splits 70/30;
calibration and combination are fitted on the first n of the 70 % and scored on the 30 %. Combined: P+L over the
calibrated probabilities, which keep their temperature. "people" calibrates with the labels alone, without any truth.
ECE and class-wise ECE (in percent) over 15 equal-mass bins. Means over splits; the standard error of an error is about
0.05.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from hitl import score
from hitl.annotations import Floats, Ints
from hitl.evidence import Evidence
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
from hitl.models.calibration.temperature_scaling import Temperature
from hitl.models.inference.calibrate_from_annotators import AS_IT_IS, CalibrateFromAnnotators
from hitl.models.pl import PL
from tests.bench import results
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth

SIZES = (100, 1000, 7000)
CALIBRATORS: dict[str, Calibrator | CalibrateFromAnnotators | None] = {
    "none": None,
    "temperature ML": TemperatureScaling(None),
    "temperature MAP": TemperatureScaling(),
    "temperature Bayes": BayesianTemperature(),
    "ensemble ML": EnsembleTemperature(None),
    "ensemble MAP": EnsembleTemperature(),
    "I-Max": IMax(),
    "I-Max by class": IMax(shared=False),
    "vector": VectorScaling(),
    "matrix": MatrixScaling(),
    "Dirichlet": DirichletCalibration(),
    "isotonic": IsotonicCalibration(),
    "people: MAP": CalibrateFromAnnotators(TemperatureScaling()),
    "people: ensemble": CalibrateFromAnnotators(EnsembleTemperature()),
    "people: I-Max": CalibrateFromAnnotators(IMax()),
    "people: vector": CalibrateFromAnnotators(VectorScaling()),
}

MEASURES = ("error %", "ECE %", "cwECE %", "NLL")
COLUMNS = (*MEASURES, *(f"{name}, label" for name in MEASURES), "ms")
FIGURES, KEPT = ("ECE", "NLL", "error with a label", "NLL with a label"), [1, 3, 4, 7]


def measures(p: Floats, truth: Ints) -> list[float]:
    """Error %, ECE %, class-wise ECE %, NLL."""
    error = 100 * (1 - score.accuracy(p, truth))
    ece, classwise = score.calibration_error(p, truth), score.classwise_calibration_error(p, truth)
    return [error, 100 * ece, 100 * classwise, score.log_loss(p, truth)]


def run(model: str, splits: int) -> dict[tuple[int, str], np.ndarray]:
    """(n, calibrator) -> (splits, 9): measures of the model, measures with a label, milliseconds of calibrating."""
    truth, classes = cifar10h_truth()
    human = np.array([labels[0] for labels in cifar10h_labels(0)], dtype=np.int32)
    p_nj = cifar10h_probabilities(model)
    rows: dict[tuple[int, str], list[list[float]]] = {}
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(truth))
        test = order[7000:]
        for n in SIZES:
            train = order[:n]
            for name, calibrator in CALIBRATORS.items():
                began = time.perf_counter()
                if isinstance(calibrator, CalibrateFromAnnotators):
                    untold = Evidence(anonymous(human[train], classes), {model: p_nj[train]})
                    fitted = calibrator.fit(untold, model)
                else:
                    fitted = calibrator.fit(p_nj[train], truth[train]) if calibrator else Temperature(1.0)
                milliseconds = 1000 * (time.perf_counter() - began)
                c_nj = fitted.apply(p_nj[test])
                taught = Evidence(
                    anonymous(human[train], classes), {model: fitted.apply(p_nj[train])}, truth=truth[train]
                )
                combination = PL(temperature=AS_IT_IS)
                consensus = combination.fit(taught)
                held_out = Evidence(anonymous(human[test], classes), {model: c_nj})
                both = combination.apply(consensus, held_out).probabilities
                row = [*measures(c_nj, truth[test]), *measures(both, truth[test]), milliseconds]
                rows.setdefault((n, name), []).append(row)
    return {key: np.array(values) for key, values in rows.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, models=["resnet-110", "resnet-low-acc", "preresnet-110"], splits=25)
    page, figures = results.Page(), {}
    for model in options.models:
        rows = {}
        for (n, name), values in sorted(run(model, options.splits).items(), key=lambda entry: entry[0][0]):
            mean = values.mean(axis=0)
            rows[n, name] = dict(zip(COLUMNS, [*mean[:8], np.median(values[:, 8])], strict=True))
            figures[f"{model} {n} {name}"] = dict(zip(FIGURES, mean[KEPT].round(4).tolist(), strict=True))
        page.tell("", f"{model} ({options.splits} splits): the model alone; with one human label")
        page.tell(*results.table(rows))
    if options.save:
        page.save("calibration", figures)


if __name__ == "__main__":
    main()
