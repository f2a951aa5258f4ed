"""Aggregators of crowd-kit with their own settings."""

from __future__ import annotations

from typing import Any

import pandas as pd
from crowdkit import aggregation
from sklearn.base import BaseEstimator

from hitl.annotations import Annotations, Floats
from tests.bench.field.methods import Fit
from tests.bench.field.tables import aligned, named

PACKAGE = "crowd-kit"


def aggregator(name: str) -> Any:
    """Make an aggregator; crowd-kit 1.4 lacks what scikit-learn has asked of estimators since."""
    made = getattr(aggregation, name)()
    if not hasattr(made, "__sklearn_tags__"):
        type(made).__sklearn_tags__ = lambda _: BaseEstimator().__sklearn_tags__()
    return made


def fit_of(name: str) -> Fit:
    def fit(annotations: Annotations) -> Floats:
        if name == "KOS" and annotations.n_classes > 2:
            raise ValueError("more than two classes")
        made = aggregator(name)
        frame = named(annotations)
        if hasattr(made, "fit_predict_proba"):
            return aligned(made.fit_predict_proba(frame), annotations)
        return aligned(pd.get_dummies(made.fit_predict(frame)), annotations).argmax(axis=1)

    return fit


NAMES = ("MajorityVote", "Wawa", "ZeroBasedSkill", "DawidSkene", "OneCoinDawidSkene", "GLAD", "MACE", "KOS", "MMSR")
METHODS = {f"crowd-kit {name}": fit_of(name) for name in NAMES}
