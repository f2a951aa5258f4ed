"""Four crowds whose items have texts or features, and the classifier that both sides are given.

    rte, sentence_polarity    TF-IDF of the texts and logistic regression
    labelme, music_genre      the features that come with the set, standardised, and logistic regression

All with scikit-learn's own settings. The classifier is what a user of CROWDLAB trains: on majority labels, a tie drawn
at random, five folds; each item is predicted by the one that has not seen it. (sentence_polarity_amt comes without the
sentences; its sentences are of the same source as those of sentence_polarity.)
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints

SETS = ("rte", "sentence_polarity", "labelme", "music_genre")
FOLDS = 5


def majority_labels(annotations: Annotations, rng: np.random.Generator) -> Ints:
    """(N,) the class that most annotators of an item gave, a tie drawn at random."""
    votes_nj = np.zeros((annotations.n_items, annotations.n_classes))
    np.add.at(votes_nj, (annotations.item, annotations.label), 1.0)
    drawn: Ints = (votes_nj + rng.random(votes_nj.shape) / 2).argmax(axis=1).astype(np.int32)
    return drawn


def classified(inputs_n: npt.NDArray[Any], label_n: Ints, n_classes: int, seed: int) -> Floats:
    """(N, J) out-of-fold probabilities of a logistic regression on these labels (N,); 0 of a class it never saw."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    p_nj = np.zeros((len(label_n), n_classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer items than folds
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(label_n, label_n))
    for seen, unseen in folds:
        first = TfidfVectorizer() if inputs_n.ndim == 1 else StandardScaler()
        model = make_pipeline(first, LogisticRegression(max_iter=2000))
        model.fit(inputs_n[seen], label_n[seen])
        p_nj[np.ix_(unseen, model.classes_)] = model.predict_proba(inputs_n[unseen])
    return p_nj
