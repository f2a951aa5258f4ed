"""The default combiner follows labels: every belief is that of `apply`, and a consensus that of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.errors import BadAnnotations, BadEvidence
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.dependence.corrected import Corrected
from hitl.models.inference import incremental
from tests.changing_crowds import part, random_changes, simulated, some_crowd, take_in, take_in_together
from tests.reference_data import crowd

with_and_without = pytest.mark.parametrize("models", [0, 2])


def follow(evidence: Evidence) -> Corrected:
    method = DefaultCombiner()
    return method.follow(method.fit(evidence), evidence)


def judged(live: Corrected) -> Any:
    """The oracle: what `apply` says of all items, by the annotators as they are now and the last effect."""
    now = live.followed.snapshot()
    learned = replace(live._corrected, annotators=now.annotators, class_shares=now.class_shares)
    return DefaultCombiner().apply(learned, live.evidence())


@with_and_without
def test_beliefs_are_those_of_apply_by_the_annotators_of_now(models: int) -> None:
    live = follow(some_crowd(3, 60, models=models, known=0.2))
    rng = np.random.default_rng(4)
    items = 60 if models else 62  # beside models an item that joins has the class shares of the fit
    for _ in range(40):
        n, k, o = rng.integers(items), rng.integers(8), rng.integers(3)
        live.label(f"n{n}", f"k{k}", live.followed.labels.options[o])
    live.followed.estimate(np.arange(live.followed.labels.n_annotators))
    expected = judged(live)
    live.followed.judge(np.arange(live.followed.labels.n_items))  # all by the same parameters
    for n, item in enumerate(expected.items):
        np.testing.assert_allclose(live.belief(item), expected.probabilities[n], atol=1e-9, err_msg=str(item))
    np.testing.assert_allclose(live.snapshot().probabilities, expected.probabilities, atol=1e-9)
    assert live.snapshot().design_effect == live._corrected.design_effect


@with_and_without
def test_a_label_moves_its_item_and_no_more_than_errors_in_common_allow(models: int) -> None:
    live = follow(some_crowd(5, 60, models=models, known=0.0))
    item, (a, b) = "n7", live.followed.labels.classes[:2]
    before = live.belief(item)
    for k in range(20, 24):
        live.label(item, f"new{k}", a)
    towards = live.belief(item)
    assert towards[0] > before[0]
    assert towards[0] < live.followed.belief(item)[0], "as if their errors were independent"
    for k in range(20, 24):
        live.label(item, f"new{k}", b)
    assert live.belief(item)[1] > towards[1]
    for k in range(20, 24):
        live.withdraw(item, f"new{k}")
    assert live.belief(item).argmax() == before.argmax()


@with_and_without
def test_a_consensus_is_made_once_and_is_that_of_a_fit(models: int) -> None:
    evidence = some_crowd(6, 200, models=models, known=0.1, abstaining=0.0)
    live = follow(evidence)
    rng = np.random.default_rng(7)
    for _ in range(30):
        live.label(f"n{rng.integers(200)}", f"k{rng.integers(6)}", f"j{rng.integers(3)}")
    found, fitted = live.consensus(), DefaultCombiner().fit(live.evidence())
    assert live.consensus() is found
    assert (found.labels == fitted.labels).mean() >= 0.99
    np.testing.assert_allclose(found.probabilities, fitted.probabilities, atol=0.05)
    assert found.fit.method == "default"
    assert found.design_effect.rho == pytest.approx(fitted.design_effect.rho, rel=0.05)
    for item in found.items[:20]:
        n = found.items.index(item)
        np.testing.assert_allclose(live.belief(item), found.probabilities[n], atol=0.02)


def test_what_was_learned_otherwise_is_not_followed() -> None:
    plain, beside = some_crowd(8, models=0), some_crowd(8, models=1)
    method = DefaultCombiner()
    for learned, evidence in ((plain, beside), (beside, plain)):
        with pytest.raises(BadEvidence, match="not learned by the default"):
            method.follow(method.fit(learned), evidence)
        updated, fitted = method.update(method.fit(learned), evidence), method.fit(evidence)
        np.testing.assert_allclose(updated.probabilities, fitted.probabilities, atol=1e-12)
    live = follow(plain)
    with pytest.raises(BadEvidence, match="is not among"):
        live.belief("never met")
    with pytest.raises(BadAnnotations):
        live.label("n0", "k0", "never met")


@pytest.mark.parametrize("models", [False, True])
def test_ten_thousand_changes_and_a_refit_agree(models: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "REFIT_AFTER", np.inf)
    evidence, _, answer = simulated(20_000, 100, 5, 4, models=models)
    live = follow(evidence)
    changes = list(random_changes(evidence.annotations, answer, 10_000))
    for start in range(0, len(changes), 100):
        take_in_together(live, evidence.annotations, changes[start : start + 100])
    refit = DefaultCombiner().fit(live.evidence())
    at_once = live.snapshot().probabilities
    assert (live.consensus().labels == refit.labels).mean() >= 0.999
    assert (at_once.argmax(axis=1) == refit.labels).mean() >= 0.998
    assert np.abs(at_once - refit.probabilities).mean() <= 0.005


def test_a_real_crowd() -> None:
    said = crowd("bluebirds").annotations
    seen, answer = part(said, 0.7)
    live = follow(Evidence(seen))
    for change in random_changes(seen, answer, 600):
        take_in(live, seen, change)
    refit = DefaultCombiner().fit(live.evidence())
    assert (live.consensus().labels == refit.labels).mean() >= 0.98
