"""Combiner with a classifier that learns the combiner's consensus from features.

    people     q_nj = combiner(labels, other models)                        training targets
    learned    p_nj = classifier(features; q of the items of other folds)   `out_of_fold`
    consensus  combiner(labels, other models, p_nj)

No item is predicted by a model that has seen its labels, and nothing is learned from an earlier prediction of the
classifier, so the two do not confirm each other. (A label does affect the estimate of its annotator, and through it
the beliefs about other items.) The pool of models (`priors.calibrated`, `inference.unsupervised_pool`) learns how
far to trust the classifier, as for any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from hitl.annotations import Floats, Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import name_of, seen_by, used
from hitl.models.learning.classifiers import classifier
from hitl.models.learning.informative import is_informative
from hitl.models.learning.out_of_fold import out_of_fold, plan_training
from hitl.models.numerics.checks import require_counts
from hitl.models.registry import combiner

NAME = "learned"
"""Name of the classifier among the models."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Combiner with a classifier that learns from it.

    Attributes:
        method: name of the combiner.
        model: "logistic", or another name that `models.learning.classifiers.classifier` knows.
        folds: K >= 2; K + 1 models are trained.
        seed: seed of the split into folds.
        groups: item -> its group of near-duplicates, which share a fold; None: each item is its own group.

    While there is too little to learn from (two classes, and two labeled items per fold), or if the classifier is no
    more informative than the class shares (`informative`), it is the combiner alone.

    Example:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> from hitl.models import Learned
        >>> from hitl.testing import crowd
        >>> evidence, truth = crowd(np.random.default_rng(0), n_items=60)
        >>> consensus = Learned().fit(replace(evidence, features=np.eye(3)[truth]))
        >>> list(consensus.temperatures)
        ['learned']
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "features"})
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    method: str = "default"
    model: str = "logistic"
    folds: int = 5
    seed: int = 0
    groups: Mapping[Name, str] | None = None

    def __post_init__(self) -> None:
        require_counts(self, "folds", least=2)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner, train on its consensus, and fit it again with the predictions."""
        evidence = used(self, evidence)
        method = combiner(self.method)
        without_features = seen_by(method, evidence)
        consensus = method.fit(without_features, start=start)
        predictions = self.predictions(evidence, consensus)
        if predictions:
            models = {**without_features.probabilities, **predictions}
            consensus = method.fit(replace(without_features, probabilities=models), start=start)
        fit = replace(consensus.fit, method=name_of(self), settings=asdict(replace(self, groups=None)))
        return replace(consensus, fit=fit)

    def predictions(self, evidence: Evidence, people: Consensus) -> dict[str, Floats]:
        """Return name -> (N, J) predictions learned from `people`; empty if they are uninformative."""
        groups = None if self.groups is None else [self.groups.get(item) for item in evidence.annotations.items]
        training = plan_training(evidence, people.probabilities, self.folds, self.seed, groups)
        if training is None:
            return {}
        p_nj, trained_n = out_of_fold(classifier(self.model), training), training.trained_n
        return {NAME: p_nj} if is_informative(p_nj[trained_n], people.probabilities[trained_n]) else {}
