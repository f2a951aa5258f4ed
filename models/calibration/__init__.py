"""Calibration of model probabilities, one algorithm per file. Classes load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

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

__getattr__, __dir__, __all__ = lazy(__name__)
