"""Bringing a consensus up to date with everything at once: few iterations, from what it learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma

from hitl import score
from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import Followable, Updatable
from hitl.models.dawid_skene import DawidSkene
from hitl.models.default import DefaultCombiner
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference import em, warm_start
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC
from hitl.testing.crowds import of_use
from tests import oracles
from tests.changing_crowds import METHODS, every_method, exact, some_crowd
from tests.tables import rows

# -- everything at once --------------------------------------------------------------------------------------


@every_method
def test_an_update_ends_after_few_iterations_where_a_fit_goes_on(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "ITERATIONS", 3)
    method, evidence = exact(method), of_use(method, some_crowd(52, 60))
    fitted = method.fit(evidence)
    kept = evidence.annotations.select(np.random.default_rng(53).random(len(evidence.annotations)) < 0.8)
    now = replace(evidence, annotations=kept)
    assert method.fit(now, start=fitted).fit.iterations > warm_start.ITERATIONS
    updated = method.update(fitted, now)
    assert updated.fit.iterations == warm_start.ITERATIONS
    assert not updated.fit.converged


@every_method
def test_an_update_takes_few_iterations_and_leaves_what_it_is_given(method: Any) -> None:
    evidence = of_use(method, some_crowd(50, 80))
    fitted = method.fit(evidence)
    before = fitted.to_bytes()
    kept = evidence.annotations.select(np.random.default_rng(51).random(len(evidence.annotations)) < 0.9)
    now = method.update(fitted, replace(evidence, annotations=kept))
    assert fitted.to_bytes() == before
    assert now.fit.iterations <= warm_start.ITERATIONS
    assert now.fit.settings == fitted.fit.settings
    refit = method.fit(replace(evidence, annotations=kept))
    assert (now.labels == refit.labels).mean() >= 0.95
    np.testing.assert_array_equal(now.annotators.labels, kept.labels_per_annotator)
    assert (np.diff(now.fit.objective) >= -1e-9 * abs(now.fit.objective[-1])).all()


@pytest.mark.parametrize("method", [DawidSkene(), PLEM(), VBIBCC()])
def test_an_update_begins_with_the_chance_of_each_answer(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes call an answer that somebody has not given yet all but impossible, and would not be moved by it."""
    evidence = of_use(method, some_crowd(54, 40, known=0.0))
    fitted = method.fit(evidence)
    begun: list[oracles.Floats] = []
    maximise = em.maximise
    monkeypatch.setattr(em, "maximise", lambda e, p, a, q, **more: (begun.append(q), maximise(e, p, a, q, **more))[1])
    updated = method.update(fitted, evidence)
    alpha_kjl = fitted.annotators.concentration
    if isinstance(method, VBIBCC):
        log_pi_kjl = digamma(alpha_kjl) - digamma(alpha_kjl.sum(axis=2, keepdims=True))
    else:
        log_pi_kjl = np.log(alpha_kjl + 1) - np.log((alpha_kjl + 1).sum(axis=2, keepdims=True))
    log_prior_nj = np.log(fitted.class_shares)[None]
    if isinstance(method, PLEM):  # which learns its temperatures first
        correlation = updated.parameters["model correlation"]
        log_prior_nj = oracles.pool(evidence, updated.temperatures, fitted.class_shares, correlation=correlation)
    logits = log_prior_nj + oracles.messages(evidence.annotations, log_pi_kjl)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    labeled = evidence.annotations.labels_per_item > 0  # nobody can tell of the others; they begin even
    if isinstance(method, PLEM):
        labeled &= ~np.isnan(sum(evidence.probabilities.values())[:, 0])
    np.testing.assert_allclose(begun[0][labeled], expected[labeled], atol=1e-9)


def test_a_new_option_is_fitted_and_a_new_class_is_an_error() -> None:
    evidence = some_crowd(40, known=0.0, models=0, pool=0)
    a = evidence.annotations
    fitted = VBIBCC().fit(evidence)
    wider = replace(a, options=(*a.options, "perhaps"))
    now = VBIBCC().update(fitted, Evidence(wider))
    np.testing.assert_allclose(now.probabilities, VBIBCC().fit(Evidence(wider)).probabilities, atol=1e-9)
    other = Annotations.from_frame(rows(("n0", "k0", "j0")), classes=["j0", "j9"])
    for method in METHODS.values():
        with pytest.raises(BadEvidence, match="classes"):
            method.update(fitted, Evidence(other, {"m": [[0.5, 0.5]]}))


def test_who_can_be_updated_and_followed() -> None:
    for method in METHODS.values():
        assert isinstance(method, Updatable)
        assert isinstance(method, Followable)


def test_with_twice_as_many_labels_an_update_begins_from_nothing() -> None:
    """What few labels say may be next to the wrong top, and no iteration leaves that."""
    evidence = some_crowd(55, 60, models=0)
    a = evidence.annotations
    for share, anew in ((0.45, True), (0.55, False)):
        few = a.select(np.arange(len(a)) % 20 < 20 * share)
        learned = VBIBCC().fit(replace(evidence, annotations=few))
        assert warm_start.goes_on(learned, evidence) != anew
        if anew:
            assert VBIBCC().update(learned, evidence).fit.objective == VBIBCC().fit(evidence).fit.objective


@pytest.mark.parametrize(
    "method",
    [DawidSkene(), VBIBCC(), PLEM(), HierarchicalDawidSkene(), DefaultCombiner()],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.parametrize("wrong", [0.2, 0.4])
def test_truths_and_labels_that_turn_out_wrong_leave_no_trace(method: Any, wrong: float) -> None:
    rng = np.random.default_rng(3)
    evidence, truth = oracles.crowd(rng, 300, 6, 4, models=1 if isinstance(method, PLEM) else 0)
    told = np.where(rng.random(300) < wrong, (truth + 1) % 4, -1)
    fitted = score.accuracy(method.fit(evidence).probabilities, truth)
    updated = method.update(method.fit(replace(evidence, truth=told)), evidence)
    assert score.accuracy(updated.probabilities, truth) >= fitted - 0.02
    annotations = evidence.annotations
    shifted = replace(annotations, label=((annotations.label + 1) % 4).astype(np.int32))
    updated = method.update(method.fit(replace(evidence, annotations=shifted)), evidence)
    assert score.accuracy(updated.probabilities, truth) >= fitted - 0.02
