"""A combiner beside a classifier that learns, from features, what the combiner says.

    people     q_nj = combiner(labels, other models)                        what is learned from
    learned    p_nj = classifier(features; q of the items of other folds)   `out_of_fold`
    consensus  combiner(labels, other models, p_nj)

No item is judged by a prediction that has seen its labels, and nothing is learned from an earlier prediction of the
classifier, so that the two do not confirm each other. (A label has a share in the estimate of its annotator, and by it
in the beliefs about other items.) How far the classifier is to be trusted is told by the pool of
models (`priors.calibrated`, `inference.unsupervised_pool`), as of any model.
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
from hitl.models.learning.informative import informs
from hitl.models.learning.out_of_fold import Training, out_of_fold
from hitl.models.numerics.checks import require_counts
from hitl.models.registry import combiner

NAME = "learned"
"""The name of the classifier among the models."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A combiner and a classifier that learns from it.

    Attributes:
        method: the name of the combiner.
        model: "logistic", or another name that `models.learning.classifiers.classifier` knows.
        folds: K >= 2; K + 1 models are trained.
        seed: of the split into folds.
        groups: item -> the group of near-duplicates it is in, which share a fold; None: each item is apart.

    While there is too little to learn from (two classes, and two labeled items a fold), and where the classifier says
    no more than the shares of the classes (`informative`), it is the combiner alone.

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
        """Fit the combiner, train on what it says, and fit it again with the predictions."""
        evidence = used(self, evidence)
        judge = combiner(self.method)
        bare = seen_by(judge, evidence)
        found = judge.fit(bare, start=start)
        predicted = self.predictions(evidence, found)
        if predicted:
            found = judge.fit(replace(bare, probabilities={**bare.probabilities, **predicted}), start=start)
        return replace(found, fit=replace(found.fit, method=name_of(self), settings=asdict(replace(self, groups=None))))

    def predictions(self, evidence: Evidence, people: Consensus) -> dict[str, Floats]:
        """Name -> (N, J) what the classifier learns from `people`; none where it says nothing."""
        groups = None if self.groups is None else [self.groups.get(item) for item in evidence.annotations.items]
        training = Training.of(evidence, people.probabilities, self.folds, self.seed, groups)
        if training is None:
            return {}
        p_nj = out_of_fold(classifier(self.model), training)
        seen_n = training.trained_n
        return {NAME: p_nj} if informs(p_nj[seen_n], people.probabilities[seen_n]) else {}
