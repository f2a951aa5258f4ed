"""A project is looked at after every batch: constant annotators are hardly ever said to change."""

from __future__ import annotations

import numpy as np

from hitl.models.analysis.drift import DriftTest


def test_few_constant_annotators_are_ever_flagged_however_often_one_looks() -> None:
    """A project looked at after every batch of 5 labels an annotator, up to 400 labels each."""
    test, n, constant = DriftTest(), 400, []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        accuracy = rng.choice([0.7, 0.85, 0.95])
        right = rng.random(n) < accuracy
        q_tj = np.eye(2)[rng.integers(2, size=n)]
        said = np.where(right, q_tj.argmax(axis=1), 1 - q_tj.argmax(axis=1)).astype(np.int32)
        looks = []
        for seen in range(20, n + 1, 5):
            share = np.clip(right[:seen].mean(), 0.01, 0.99)
            pi_jl = np.array([[share, 1 - share], [1 - share, share]])
            looks.append(test._change(np.arange(float(seen)), said[:seen], q_tj[:seen], pi_jl))
        constant.append((any(test.alarms([look])[0] for look in looks), min(look.p_value for look in looks) < 0.05))
    ever, at_one_look = np.mean(constant, axis=0)
    assert ever <= 0.05
    assert at_one_look > 0.2  # p at one look, which alarms went by before, is no guard against many
