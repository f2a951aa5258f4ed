"""Fit any calibrator to annotators' labels instead of ground truth.

    1   q_nj  ∝  p_T(n)[j]  prod_k pi[k, j, l_nk]          P+L-EM, the model at a network's usual temperature
    2   c = argmax sum_nj q_nj log c(p_n)[j]               any calibrator, on these soft labels

Items without labels do not count, because their beliefs are the model's own. Ground truth enters q as one-hot rows.
Beliefs depend on the model itself, so they identify its calibration only weakly: if both steps were repeated (EM), the
calibration would drift, further the more flexible the calibrator is. On CIFAR-10H one round is best for every
calibrator, and calibrates as well as ground truth does (docs/benchmarks/calibration.txt).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.calibration.calibrator import Calibration, Calibrator
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.calibration.temperature_scaling import Temperature
from hitl.models.inference import em
from hitl.models.pl_em import PLEM

AS_IT_IS = LogTemperature(mean=0.0, sd=0.01)
"""Prior of a model that is already calibrated: it keeps its temperature."""


@dataclass(frozen=True, slots=True)
class CalibrateFromAnnotators:
    """Calibrator that is fitted to annotators' labels instead of ground truth."""

    calibrator: Calibrator

    def fit(self, evidence: Evidence, model: str) -> Calibration:
        """Fit the calibration of one of the evidence's models. Raise BadEvidence if it has no model of that name."""
        if model not in evidence.probabilities:
            found = ", ".join(evidence.probabilities) or "none"
            raise BadEvidence(f"probabilities of {model!r} are to be calibrated; found {found}")
        p_nj = evidence.probabilities[model]
        first = Temperature(LogTemperature().mode).apply(p_nj)
        calibrated = Evidence(evidence.annotations, {model: first}, truth=evidence.truth)
        q_nj = PLEM(temperature=AS_IT_IS).fit(calibrated).probabilities
        return self.calibrator.fit(p_nj, np.where(em.informative(evidence, 1)[:, None], q_nj, 0.0))
