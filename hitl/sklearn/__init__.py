"""Estimators with the interface of scikit-learn; needs the extra `sklearn`.

Example:
    >>> import numpy as np
    >>> import hitl
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]]), [[0, 0, -1], [0, 0, 1], [1, -1, 1], [1, 1, 1]]
    >>> hitl.sklearn.CrowdClassifier().fit(X, y).predict([[0.05], [0.95]]).tolist()
    [0, 1]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy
from hitl.models.predictors.predictor import SKLEARN, required

required("sklearn", "hitl.sklearn", SKLEARN)

if TYPE_CHECKING:
    from hitl.sklearn.crowd_classifier import CrowdClassifier as CrowdClassifier
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
