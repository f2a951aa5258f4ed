"""TF-IDF and truncated SVD (latent semantic analysis, Deerwester et al. 1990): numbers of texts, learned on these.

    t_nv = (how often word v is in text n) × (log((1 + N) / (1 + texts with v)) + 1),  rows scaled to length 1
    t ≈ U S Vᵀ,  the d largest singular values;  x_n = (U S)_n

Words are those of scikit-learn's TfidfVectorizer, as it is: lower case, two characters or more. It finds what shares
words, in any language that has spaces between them, and knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.models.predictors.predictor import required

DIMENSIONS = 100
"""As many as scikit-learn recommends for latent semantic analysis."""

INSTALL = "hitl-toolkit[sklearn]"


def tfidf_svd(texts: Sequence[str], dimensions: int | None = None) -> Floats:
    """(N, d) of N texts, d = `dimensions` (default 100), fewer where there are not so many texts or words.

    The same texts give the same numbers. A text without any word is a row of NaN. Raises BadInput where no text has
    one.

    Example:
        >>> from hitl.models.predictors.texts import tfidf_svd
        >>> tfidf_svd(["a red cat", "the red dog", "?"], 2).shape
        (3, 2)
    """
    extraction = required("sklearn.feature_extraction.text", "TF-IDF", INSTALL)
    decomposition = required("sklearn.decomposition", "TF-IDF", INSTALL)
    try:
        t_nv = extraction.TfidfVectorizer().fit_transform(texts)
    except ValueError as error:  # of an empty vocabulary
        raise BadInput(f"none of the {len(texts)} texts has a word of two letters or more: {error}") from None
    worded = np.flatnonzero(np.diff(t_nv.indptr))
    most = min(dimensions or DIMENSIONS, len(worded), t_nv.shape[1])
    x_nd = np.full((len(texts), most), np.nan)
    if t_nv.shape[1] == 1:  # one word, of which scikit-learn decomposes nothing
        x_nd[worded] = 1.0
        return x_nd
    with np.errstate(invalid="ignore"):  # of the share of variance that each explains, where there is none
        x_nd[worded] = decomposition.TruncatedSVD(most, random_state=0).fit_transform(t_nv[worded])
    return x_nd
