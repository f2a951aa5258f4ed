"""`DesignEffect`: how much labels are worth if annotators and models make the same mistakes.

An item that misleads one annotator tends to mislead other annotators and the models too. The v_n judges of an item (its
m_n labels, and the pool of models if it predicts the item) are worth only v_n / T_n independent judges, with

    T_n  =  c_n  +  (max(v_n, m_n + echo) - 1) rho            (design effect of clusters, Kish 1965)

    c_n    residual temperature of the pool of models if it predicts the item, else 1
    rho    correlation of the errors of two judges of one item, >= 0
    echo   number of imaginary extra judges per item. It is 1 if annotator skill was estimated from agreement, because
           shared errors look like skill and make even a single label look too reliable; else 0. If the pool of models
           predicts the item, it takes the place of this judge

and the posterior q0_n under independence becomes  q_n  ∝  exp( ln q0_n / T_n + shift ).  A consensus includes its
design effect, which `hitl.models.dependence` estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

SMALLEST = 1e-300
"""Smallest probability for logarithms. Smaller ones are raised to it."""


@dataclass(frozen=True, eq=False)
class DesignEffect:
    """Dependence between the labels of one item; by default none.

    Attributes:
        rho: correlation of the errors of two judges of one item, >= 0; 0: labels are independent.
        echo: number of imaginary extra judges of each item with labels, >= 0.
        residual: temperature that the pool of models still needs, >= 1.
        shift: (J,) addition to the log posterior of items with labels, or None.

    Example:
        >>> import numpy as np
        >>> from hitl import DesignEffect
        >>> effect = DesignEffect(rho=0.5)
        >>> two_labels = np.log([[0.9, 0.1]]) * 2
        >>> effect.temper(two_labels, np.array([2]), np.array([False])).round(2).tolist()
        [[0.95, 0.05]]
    """

    rho: float = 0.0
    echo: float = 0.0
    residual: float = 1.0
    shift: Floats | None = None

    @property
    def independent(self) -> bool:
        """True if the posteriors are those under independence."""
        return self.rho == 0 and self.residual == 1 and self.shift is None

    def temperature(self, labels: Counts, predicted: Mask) -> Floats:
        """Return (N,) T_n >= 1, given (N,) numbers of labels and an (N,) mask of items with model predictions."""
        others = np.where(labels > 0, labels - 1 + np.maximum(predicted, self.echo), 0.0)
        return np.asarray(np.where(predicted, self.residual, 1.0) + self.rho * others)

    def temper(self, log_q0: Floats, labels: Counts, predicted: Mask) -> Floats:
        """Return (N, J) posteriors, given (N, J) log posteriors under independence, up to a constant per row."""
        logits = log_q0 / self.temperature(labels, predicted)[..., None] + self._shift(labels)
        logits -= logits.max(axis=-1, keepdims=True)
        beliefs: Floats = np.exp(logits)
        beliefs /= beliefs.sum(axis=-1, keepdims=True)
        return beliefs

    def untemper(self, q: Floats, labels: Counts, predicted: Mask) -> Floats:
        """Return (N, J) log posteriors under independence, up to a constant per row. Inverse of `temper`."""
        log_q = np.log(np.maximum(q, SMALLEST)) - self._shift(labels)
        log_q0: Floats = log_q * self.temperature(labels, predicted)[..., None]
        return log_q0

    def _shift(self, labels: Counts) -> Floats | float:
        return 0.0 if self.shift is None else np.where((labels > 0)[..., None], self.shift, 0.0)
