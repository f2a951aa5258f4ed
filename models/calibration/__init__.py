"""Calibration: model probabilities that mean what they say; one algorithm a file. Classes load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.models.calibration.bayesian_temperature import BayesianTemperature as BayesianTemperature
    from hitl.models.calibration.calibrator import Calibration as Calibration
    from hitl.models.calibration.calibrator import Calibrator as Calibrator
    from hitl.models.calibration.dirichlet_calibration import DirichletCalibration as DirichletCalibration
    from hitl.models.calibration.ensemble_temperature import EnsembleTemperature as EnsembleTemperature
    from hitl.models.calibration.imax import IMax as IMax
    from hitl.models.calibration.isotonic import IsotonicCalibration as IsotonicCalibration
    from hitl.models.calibration.matrix_scaling import MatrixScaling as MatrixScaling
    from hitl.models.calibration.temperature import LogTemperature as LogTemperature
    from hitl.models.calibration.temperature_scaling import TemperatureScaling as TemperatureScaling
    from hitl.models.calibration.vector_scaling import VectorScaling as VectorScaling

_PUBLIC = {
    "BayesianTemperature": "bayesian_temperature",
    "Calibration": "calibrator",
    "Calibrator": "calibrator",
    "DirichletCalibration": "dirichlet_calibration",
    "EnsembleTemperature": "ensemble_temperature",
    "IMax": "imax",
    "IsotonicCalibration": "isotonic",
    "LogTemperature": "temperature",
    "MatrixScaling": "matrix_scaling",
    "TemperatureScaling": "temperature_scaling",
    "VectorScaling": "vector_scaling",
}
__all__ = [
    "BayesianTemperature",
    "Calibration",
    "Calibrator",
    "DirichletCalibration",
    "EnsembleTemperature",
    "IMax",
    "IsotonicCalibration",
    "LogTemperature",
    "MatrixScaling",
    "TemperatureScaling",
    "VectorScaling",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"hitl.models.calibration.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'hitl.models.calibration' has no attribute {name!r}")
