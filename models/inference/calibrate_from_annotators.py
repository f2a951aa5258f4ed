"""Any calibration without truth: people's labels calibrate the model, the calibrated model judges the people (EM).

    E   q_nj  ∝  c(p_n)[j]  prod_k pi[k, j, l_nk]          what a consensus believes: P+L-EM with c as its model
    M   c = argmax sum_nj q_nj log c(p_n)[j]               any calibrator, on these soft labels; pi within P+L-EM

The first E-step tempers the model by what networks tend to need (1.65). Items that nobody labeled teach nothing:
their beliefs are the model's own. Known truths stand in q as they are. Beliefs know the model's opinion, which
identifies a calibration only weakly: the more rounds it is given, and the more it can bend, the further it strays.
On CIFAR-10H one round is best for every calibrator and calibrates as well as the truth does
(docs/benchmarks/calibration.txt); it is the default.
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
from hitl.models.numerics.checks import require_whole
from hitl.models.pl_em import PLEM

AS_IT_IS = LogTemperature(mean=0.0, sd=0.01)
"""A model that has been calibrated keeps its temperature."""


@dataclass(frozen=True, slots=True)
class ByPeople:
    """A calibrator, and how many rounds of EM it is given, at least 1."""

    calibrator: Calibrator
    rounds: int = 1

    def __post_init__(self) -> None:
        require_whole("rounds", self.rounds, 1)

    def fit(self, evidence: Evidence, model: str) -> Calibration:
        """The calibration of one of the evidence's models. Raises BadEvidence where it has none of that name."""
        if model not in evidence.probabilities:
            found = ", ".join(evidence.probabilities) or "none"
            raise BadEvidence(f"probabilities of {model!r} are to be calibrated; found {found}")
        p_nj = evidence.probabilities[model]
        taught_n = em.informative(evidence, 1)
        calibration: Calibration = Temperature(LogTemperature().mode)
        for _ in range(self.rounds):
            calibrated = Evidence(evidence.annotations, {model: calibration.apply(p_nj)}, truth=evidence.truth)
            q_nj = PLEM(temperature=AS_IT_IS).fit(calibrated).probabilities
            calibration = self.calibrator.fit(p_nj, np.where(taught_n[:, None], q_nj, 0.0))
        return calibration
