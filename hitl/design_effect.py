"""`DesignEffect`: what labels are worth where annotators and models err together.

An item that misleads one annotator tends to mislead the next one, and the models too. Given its class, v_n judges of
one item (its m_n labels, and the pool of models where it predicts) are then worth v_n / T_n independent ones, with

    T_n  =  c_n  +  ((v_n - 1) / m_n)  sum over labels of n of rho_nk        (design effect of clusters, Kish 1965)
    rho_nk  =  ceiling · delta_nk / (delta_nk + half)

    c_n         residual temperature of the pool of models where it predicts, else 1
    delta_nk    how far annotator k tells the two most probable classes apart, (mu / sigma)^2 >= 0

and the posterior under independence becomes  q_n  ∝  exp( ln q0_n / T_n + shift ).  A consensus carries its design
effect; `hitl.models.dependence` estimates it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

SMALLEST = 1e-300
"""Probability below which a logarithm is taken of this instead."""


@dataclass(frozen=True, eq=False)
class DesignEffect:
    """How strongly labels of one item depend on each other; as it comes, not at all.

    Attributes:
        ceiling: rho of an annotator who tells the classes perfectly apart, >= 0; 0: labels are independent.
        half: the separation delta at which rho is half the ceiling, >= 0; 0: rho is the ceiling for all annotators.
        residual: temperature that the pool of models still needs, >= 1.
        shift: (J,) added to the log posterior of items with labels, or None: nothing.

    Example:
        >>> import numpy as np
        >>> from hitl import DesignEffect
        >>> effect = DesignEffect(ceiling=0.5)
        >>> two_labels = np.log([[0.9, 0.1]]) * 2
        >>> effect.temper(two_labels, np.array([2]), np.array([False]), np.array([1.0])).round(2).tolist()
        [[0.95, 0.05]]
    """

    ceiling: float = 0.0
    half: float = 0.0
    residual: float = 1.0
    shift: Floats | None = None

    @property
    def independent(self) -> bool:
        """Whether every posterior stays as it is."""
        return self.ceiling == 0 and self.residual == 1 and self.shift is None

    def rho(self, delta: Floats) -> Floats:
        """Correlation of an answer with the others of its item, of the shape of the separations, >= 0."""
        if self.half == 0:
            return np.full_like(delta, self.ceiling)
        correlation: Floats = self.ceiling * (1 - 1 / (1 + delta / self.half))
        return correlation

    def temperature(self, labels: Counts, predicted: Mask, rho_sum: Floats) -> Floats:
        """T_n >= 1 of items with so many labels, whether models predict them, and the sum of rho over the labels."""
        others = labels + predicted - 1
        ratio = np.where(labels > 0, others / np.maximum(labels, 1), 0.0)
        return np.asarray(np.where(predicted, self.residual, 1.0) + ratio * rho_sum)

    def temper(self, log_q0: Floats, labels: Counts, predicted: Mask, rho_sum: Floats) -> Floats:
        """(n, J) beliefs from the log posterior under independence (n, J), up to a constant a row."""
        logits = log_q0 / self.temperature(labels, predicted, rho_sum)[..., None] + self._shift(labels)
        logits = logits - logits.max(axis=-1, keepdims=True)
        beliefs: Floats = np.exp(logits)
        beliefs /= beliefs.sum(axis=-1, keepdims=True)
        return beliefs

    def untemper(self, q: Floats, labels: Counts, predicted: Mask, rho_sum: Floats) -> Floats:
        """(n, J) log posterior under independence, up to a constant a row, from beliefs: the inverse of `temper`."""
        log_q = np.log(np.maximum(q, SMALLEST)) - self._shift(labels)
        log_q0: Floats = log_q * self.temperature(labels, predicted, rho_sum)[..., None]
        return log_q0

    def after_answer(self, labels: Counts, rho_sum: Floats, delta: Floats) -> tuple[Counts, Floats]:
        """Number of labels and sum of rho after one more answer about each item.

        `delta`: how far its annotator tells the item's two most probable classes apart.
        """
        return labels + 1, rho_sum + self.rho(delta)

    def _shift(self, labels: Counts) -> Floats | float:
        return 0.0 if self.shift is None else np.where((labels > 0)[..., None], self.shift, 0.0)
