"""Calibration of model probabilities, by family. Classes load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.models.calibration.affine import DirichletCalibration as DirichletCalibration
    from hitl.models.calibration.affine import MatrixScaling as MatrixScaling
    from hitl.models.calibration.affine import VectorScaling as VectorScaling
    from hitl.models.calibration.calibrator import Calibration as Calibration
    from hitl.models.calibration.calibrator import Calibrator as Calibrator
    from hitl.models.calibration.rising import IMax as IMax
    from hitl.models.calibration.rising import IsotonicCalibration as IsotonicCalibration
    from hitl.models.calibration.temperature import LogTemperature as LogTemperature
    from hitl.models.calibration.temperature_scaling import BayesianTemperature as BayesianTemperature
    from hitl.models.calibration.temperature_scaling import EnsembleTemperature as EnsembleTemperature
    from hitl.models.calibration.temperature_scaling import TemperatureScaling as TemperatureScaling
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
