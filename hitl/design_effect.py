"""`DesignEffect`: how much labels are worth if annotators and models make the same mistakes.

An item that misleads one annotator tends to mislead the next one, and the models too. Given its class, the v_n judges
of an item (its m_n labels, and the pool of models if it predicts) are worth v_n / T_n independent ones, with

    T_n  =  c_n  +  (max(v_n, m_n + echo) - 1) rho            (design effect of clusters, Kish 1965)

    c_n    residual temperature of the pool of models if it predicts, else 1
    rho    correlation of the errors of two judges of one item, >= 0
    echo   unseen extra judges per item: 1 if annotator skill was estimated from agreement, because shared errors look
           like skill and even a single label seems to say more than it does; else 0. A pool of models replaces it

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
"""Smallest probability of which a logarithm is taken; smaller ones are raised to it."""


@dataclass(frozen=True, eq=False)
class DesignEffect:
    """Dependence between the labels of one item; by default none.

    Attributes:
        rho: correlation of the errors of two judges of one item, >= 0; 0: labels are independent.
        echo: unseen extra judges of each item with labels, >= 0.
        residual: temperature that the pool of models still needs, >= 1.
        shift: (J,) added to the log posterior of items with labels, or None.

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
        """True if every posterior stays unchanged."""
        return self.rho == 0 and self.residual == 1 and self.shift is None

    def temperature(self, labels: Counts, predicted: Mask) -> Floats:
        """Return T_n >= 1 from the number of labels per item and a mask of items with model predictions."""
        others = np.where(labels > 0, labels - 1 + np.maximum(predicted, self.echo), 0.0)
        return np.asarray(np.where(predicted, self.residual, 1.0) + self.rho * others)

    def temper(self, log_q0: Floats, labels: Counts, predicted: Mask) -> Floats:
        """Return (n, J) posteriors from the log posterior under independence (n, J), given up to a constant per row."""
        logits = log_q0 / self.temperature(labels, predicted)[..., None] + self._shift(labels)
        logits -= logits.max(axis=-1, keepdims=True)
        beliefs: Floats = np.exp(logits)
        beliefs /= beliefs.sum(axis=-1, keepdims=True)
        return beliefs

    def untemper(self, q: Floats, labels: Counts, predicted: Mask) -> Floats:
        """Return the (n, J) log posterior under independence, up to a constant per row. The inverse of `temper`."""
        log_q = np.log(np.maximum(q, SMALLEST)) - self._shift(labels)
        log_q0: Floats = log_q * self.temperature(labels, predicted)[..., None]
        return log_q0

    def _shift(self, labels: Counts) -> Floats | float:
        return 0.0 if self.shift is None else np.where((labels > 0)[..., None], self.shift, 0.0)
