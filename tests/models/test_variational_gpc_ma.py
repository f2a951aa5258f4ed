"""VariationalGPCMA on simulated crowds with features: what it learns, divides, joins, keeps and refuses."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from hitl import score
from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadSettings, MissingExtra
from hitl.evidence import Evidence
from hitl.models import VBIBCC, VariationalGPCMA
from hitl.models.inference import em
from hitl.models.priors.variational_gp import VariationalGP
from hitl.testing.crowds import crowd

FEW = VariationalGPCMA(inducing=30)


def featured(n: int = 300, *, unlabeled: int = 0, seed: int = 0, **shape: Any) -> tuple[Evidence, Ints]:
    """Three classes around the corners of a triangle, one of which has two parts."""
    rng = np.random.default_rng(seed)
    shape = {"n_annotators": 8, "asked": 0.3, "unlabeled": unlabeled} | shape
    evidence, truth = crowd(rng, n, **shape)
    corners = np.array([[0.0, 0.0], [3.0, 0.0], [1.5, 2.6], [-1.5, 2.6]])
    part = np.where((truth == 0) & (rng.random(n) < 0.5), 3, truth)
    return replace(evidence, features=corners[part] + 0.8 * rng.normal(size=(n, 2))), truth


def without_features(evidence: Evidence, rows: Any) -> Evidence:
    """The same with rows of NaN for some items."""
    features = np.array(evidence.features)
    features[rows] = np.nan
    object.__setattr__(evidence, "features", features)
    return evidence


@pytest.fixture(scope="module")
def learned() -> Consensus:
    """A fit of 300 items."""
    return FEW.fit(featured()[0])


def test_it_learns_what_features_tell() -> None:
    """Of labeled items more than the labels alone; of items nobody labeled, nearly as much as can be known."""
    evidence, truth = featured(unlabeled=100)
    found = FEW.fit(evidence)
    labels_alone = VBIBCC().fit(Evidence(evidence.annotations))
    assert score.accuracy(found.probabilities[:200], truth[:200]) > 0.03 + score.accuracy(
        labels_alone.probabilities[:200], truth[:200]
    )
    assert score.accuracy(found.probabilities[200:], truth[200:]) > 0.85
    assert found.fit.converged


def test_items_that_nothing_is_said_of_are_judged_as_by_passes_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beliefs, bound and annotators are those of iterations that look at every item."""
    evidence, _ = featured(unlabeled=150, known=0.1)
    found = FEW.fit(evidence)

    def over_all(self: Any, evidence: Evidence, prior: Any, people: Any, q_nj: Any) -> Any:
        settings = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        return em.run_em(evidence, prior, people, q_nj, **settings)

    monkeypatch.setattr(VariationalGPCMA, "_maximised", over_all)
    expected = FEW.fit(evidence)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-9)
    np.testing.assert_allclose(found.fit.objective, expected.fit.objective, rtol=1e-9)
    np.testing.assert_allclose(found.annotators.accuracy, expected.annotators.accuracy, atol=1e-9)
    for name, values in expected.parameters.items():
        np.testing.assert_allclose(found.parameters[name], values, atol=1e-6, err_msg=name)


# -- batches -------------------------------------------------------------------------------------------------


@pytest.mark.journey
def test_batches_come_to_the_same_answer() -> None:
    """The bound within a hundredth of a nat an item, beliefs within a hundredth on average."""
    evidence, truth = featured(1500)
    whole = FEW.fit(evidence)
    divided = VariationalGPCMA(inducing=30, batch=250).fit(evidence)
    np.testing.assert_allclose(divided.fit.objective[-1], whole.fit.objective[-1], atol=0.01 * 1500)
    assert np.abs(divided.probabilities - whole.probabilities).mean() < 0.01
    assert (divided.codes == whole.codes).mean() > 0.99
    assert score.accuracy(divided.probabilities, truth) > 0.85


# -- later items, later labels -------------------------------------------------------------------------------


def test_items_it_has_not_seen_are_judged_by_their_features(learned: Consensus) -> None:
    later, truth = featured(200, seed=1)
    bare = replace(later, annotations=later.annotations.select(np.zeros(len(later.annotations), dtype=bool)))
    judged = FEW.apply(learned, bare)
    assert score.accuracy(judged.probabilities, truth) > 0.85
    mean_nj = judged.parameters["latent mean"]
    np.testing.assert_allclose(judged.probabilities, np.exp(mean_nj - logsumexp(mean_nj, axis=1)[:, None]), atol=1e-9)
    assert judged.parameters["latent variance"].shape == (200, 3)
    assert (judged.parameters["latent variance"] > 0).all()
    with_labels = FEW.apply(learned, later)
    assert score.accuracy(with_labels.probabilities, truth) > score.accuracy(judged.probabilities, truth)


def test_other_features_are_refused(learned: Consensus) -> None:
    evidence, _ = featured()
    assert evidence.features is not None
    with pytest.raises(BadEvidence, match="features: they or their settings differ"):
        FEW.apply(learned, replace(evidence, features=evidence.features[:, :1]))
    with pytest.raises(BadEvidence, match=r"needs features of the items .* found none"):
        FEW.apply(learned, replace(evidence, features=None))


@pytest.mark.journey
def test_a_warm_start_after_ten_labels_costs_a_fifth_and_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = featured(400)
    a = evidence.annotations
    fewer = replace(evidence, annotations=a.select(np.arange(len(a)) % (len(a) // 10) != 0))
    before = Consensus.from_bytes(FEW.fit(fewer).to_bytes())
    passes: list[int] = []
    posterior = VariationalGP.posterior

    def counted(self: VariationalGP, message_nj: Floats, counted_n: Any) -> Any:
        passes.append(len(message_nj) * (2 if self.rate else 1))  # gradients cost as much again
        return posterior(self, message_nj, counted_n)

    monkeypatch.setattr(VariationalGP, "posterior", counted)
    cold = FEW.fit(evidence)
    cost = sum(passes)
    passes.clear()
    warm = FEW.fit(evidence, start=before)
    assert sum(passes) <= cost / 5
    np.testing.assert_allclose(warm.probabilities, cold.probabilities, atol=0.03)
    assert (warm.codes == cold.codes).mean() > 0.99


# -- items without features, devices -------------------------------------------------------------------------


def test_items_without_features_are_judged_by_labels_and_shares() -> None:
    evidence, truth = featured(300, unlabeled=20)
    found = FEW.fit(without_features(evidence, slice(200, 300)))
    p = found.probabilities
    assert score.accuracy(p[:200], truth[:200]) > 0.85
    assert score.accuracy(p[200:280], truth[200:280]) > 0.5
    np.testing.assert_allclose(p[280:], np.tile(p[280], (20, 1)), atol=1e-12)
    np.testing.assert_allclose(p[280], p[200:280].mean(axis=0), atol=0.05)
    again = FEW.apply(found, evidence)
    np.testing.assert_allclose(again.probabilities, p, atol=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"annotators": "coins"}, "annotators is 'coins'; expected one of dirichlet, map"),
        ({"inducing": 0}, "inducing is 0; expected a whole number of at least 1"),
        ({"accuracy": 1.0}, "accuracy is 1.0"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        VariationalGPCMA(**settings).fit(featured(20)[0])


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hitl.models.priors.") or "softmax_bound" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"a Gaussian process needs torch: pip install 'hitl-toolkit\[gp\]'"):
        FEW.fit(featured(20)[0])
