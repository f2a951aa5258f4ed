"""Why folds: P+L learns how far to trust a model on items with known labels; they must not be its training items."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import PL
from hitl.models.predictors.folds import Examples, train
from hitl.models.predictors.inputs import Batch
from hitl.tables.probabilities import Array
from tests.tables import rows

N, KNOWN, CLASSES = 1500, 300, ("a", "b", "c")


def test_out_of_fold_probabilities_are_trusted_as_far_as_they_are_right() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=N)
    inputs = rng.normal(size=(N, 6)) + 0.8 * np.eye(3, 6)[truth]
    items = [f"{n}" for n in range(N)]
    said = np.where(rng.random(N) < 0.7, truth, (truth + rng.integers(1, 3, size=N)) % 3)
    people = Annotations.from_frame(
        rows(*((items[n], "ann", CLASSES[said[n]]) for n in range(N))), items=items, classes=CLASSES
    )
    labels = [CLASSES[code] for code in truth[:KNOWN]]
    examples = Examples(items[:KNOWN], inputs[:KNOWN], (), labels, [None] * KNOWN)
    predictor = train(lambda: RandomForestClassifier(40, random_state=0, n_jobs=1), examples, 5)
    known = np.where(np.arange(N) < KNOWN, truth, -1).astype(np.int32)

    def combined(probabilities: Array) -> tuple[float, float]:
        """Temperature of the model, and log loss on the items whose truth is not known."""
        consensus = PL().fit(Evidence(people, {"forest": probabilities}, truth=known))
        p = consensus.probabilities[np.arange(N), truth][KNOWN:]
        return consensus.temperatures["forest"], float(-np.log(np.maximum(p, 1e-12)).mean())

    batch = Batch(0, items, "features", inputs, (), [None] * N)
    honest_temperature, honest = combined(predictor.predict(batch))
    # The model trained on all labels judges everything, its training items among them.
    seen_temperature, seen = combined(predictor.models[0].predict(inputs, (), CLASSES))
    assert seen_temperature < 0.6 * honest_temperature
    assert honest < seen - 0.05
