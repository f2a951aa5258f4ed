"""Features computed from all items at once: scaled columns, principal components, TF-IDF (Deerwester et al. 1990)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.models.predictors.predictor import SKLEARN, required
from hitl.tables.encode import natural_order

MAX_CATEGORIES = 1_000
"""Maximum number of different values of a categorical column. A column with more is a name or a text."""

TFIDF_DIMENSIONS = 100
"""Default number of dimensions, which scikit-learn recommends for latent semantic analysis."""


def scaled(name: str, values: Sequence[Any]) -> Floats:
    """Return (N, d) features from the N values of a column: standardized numbers, or 0 and 1 per category.

    Raise BadInput if there are too many categories.
    """
    try:
        numbers = np.array([np.asarray(value, dtype=np.float64).ravel() for value in values])
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty((0, 0))
    is_logical = any(isinstance(value, bool) for value in values)
    if numbers.size and np.isfinite(numbers).all() and not is_logical:
        deviation = numbers.std(axis=0)
        return np.asarray((numbers - numbers.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))
    texts = [str(value) for value in values]
    categories = natural_order(list(dict.fromkeys(texts)))
    if len(categories) > MAX_CATEGORIES:
        raise BadInput(
            f"column {name!r}: {len(categories):,} different values; expected numbers, or {MAX_CATEGORIES:,} "
            "categories at most. Of texts make features with text, of names none"
        )
    code = {category: j for j, category in enumerate(categories)}
    return np.eye(len(categories))[[code[text] for text in texts]]


def principal(x_nd: Floats, dimensions: int) -> Floats:
    """Return (N, d) principal components of the rows, signed so that the largest loading of each is positive."""
    centred = x_nd - x_nd.mean(axis=0)
    _, direction_dd = np.linalg.eigh(centred.T @ centred)
    v_dd = direction_dd[:, ::-1][:, : min(dimensions, *x_nd.shape)]
    sign = np.sign(v_dd[np.abs(v_dd).argmax(axis=0), np.arange(v_dd.shape[1])])
    return np.asarray(centred @ (v_dd * sign))


def tfidf_svd(texts: Sequence[str], dimensions: int | None = None) -> Floats:
    """Return (N, d) singular components of the texts' TF-IDF, d = `dimensions` (default 100) or fewer.

    The same texts give the same numbers. A text without words gets a row of NaN. Raise BadInput if no text has words.
    """
    extraction = required("sklearn.feature_extraction.text", "TF-IDF", SKLEARN)
    decomposition = required("sklearn.decomposition", "TF-IDF", SKLEARN)
    try:
        t_nv = extraction.TfidfVectorizer().fit_transform(texts)
    except ValueError as error:  # an empty vocabulary
        raise BadInput(f"none of the {len(texts)} texts has a word of two or more letters: {error}") from None
    worded = np.flatnonzero(np.diff(t_nv.indptr))
    d = min(dimensions or TFIDF_DIMENSIONS, len(worded), t_nv.shape[1])
    x_nd = np.full((len(texts), d), np.nan)
    if t_nv.shape[1] == 1:  # scikit-learn does not decompose a single word
        x_nd[worded] = 1.0
        return x_nd
    with np.errstate(invalid="ignore"):  # scikit-learn divides by the total variance, which may be 0
        x_nd[worded] = decomposition.TruncatedSVD(d, random_state=0).fit_transform(t_nv[worded])
    return x_nd
