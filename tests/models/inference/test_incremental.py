"""Labels one by one: the sums stay exact, every step climbs, and where the steps rest the fit rests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, gammaln, xlogy

from hitl.models.dawid_skene import DawidSkene
from hitl.models.hierarchy import hierarchical_dawid_skene
from hitl.models.inference import incremental
from hitl.models.inference.incremental import IncrementalEM
from hitl.models.pl_em import PLEM
from hitl.models.priors.followed import FollowedOutputs
from hitl.models.vb_ibcc import VBIBCC
from hitl.testing.crowds import of_use
from tests import oracles
from tests.changing_crowds import (
    METHODS,
    assert_sums_are_exact,
    change_at_random,
    every_method,
    exact,
    follow,
    some_crowd,
    voted,
)

# -- the sums ------------------------------------------------------------------------------------------------


@every_method
def test_the_sums_are_those_of_the_beliefs_after_any_changes(method: Any) -> None:
    live = follow(method, some_crowd(1, asked=0.3))
    assert_sums_are_exact(live, 1e-12)
    change_at_random(live, np.random.default_rng(2), 150, strangers=2)
    assert live.labels.n_items > 30
    assert live.labels.n_annotators > 7
    assert_sums_are_exact(live, 1e-11)


def test_the_sums_do_not_drift_in_ten_thousand_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "REFRESH_AFTER", np.inf)  # which would sum anew
    live = follow(METHODS["vb-ibcc, anchored"], some_crowd(3, 20, models=0, pool=0))
    rng, options, people = np.random.default_rng(4), live.labels.options, live.labels.annotators
    for n, k, o in zip(
        rng.integers(20, size=10_000), rng.integers(6, size=10_000), rng.integers(5, size=10_000), strict=True
    ):
        if o < 4:
            live.label(f"n{n}", people[k], options[o])
        elif live.labels.count(n, k):
            live.withdraw(f"n{n}", people[k])
    assert_sums_are_exact(live, 1e-9)


# -- the steps -----------------------------------------------------------------------------------------------


def divergence(alpha: oracles.Floats, prior: oracles.Floats) -> float:
    """KL(Dir(alpha) || Dir(prior)), summed over rows."""

    def log_beta(a: oracles.Floats) -> oracles.Floats:
        return gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))

    logs = digamma(alpha) - digamma(alpha.sum(axis=-1, keepdims=True))
    return float(
        (log_beta(np.broadcast_to(prior, alpha.shape)) - log_beta(alpha)).sum() + ((alpha - prior) * logs).sum()
    )


class Climb:
    """F where the steps stand: with the parameters in force, which `teach` alone changes."""

    def __init__(self, live: IncrementalEM) -> None:
        self.live = live
        self.alpha_klj = self.posteriors()

    def posteriors(self) -> oracles.Floats:
        w, live = self.live.rule.anchor, self.live
        taught = (1 - w) * live.counts_klj + (w * live.votes_klj if w else 0)
        return taught + live.rule.pseudo(np.arange(len(live.counts_klj)))

    def estimate(self, annotators: Any) -> None:
        self.live.estimate(annotators)
        self.alpha_klj[annotators] = self.posteriors()[annotators]

    def height(self) -> float:
        live, rule, evidence = self.live, self.live.rule, self.live.evidence()
        w, q_nj, log_pi_klj = rule.anchor, live.q_nj, live.log_pi_klj
        message_nj = oracles.messages(evidence.annotations, log_pi_klj.transpose(0, 2, 1))
        of_votes = rule.share_anchor
        learned_j = (1 - of_votes) * live.share_j + (of_votes * live.vote_j if of_votes else 0)
        nu_j = learned_j + rule.share_smoothing  # the best shares, which every step has
        log_p_j = digamma(nu_j) - digamma(nu_j.sum()) if rule.variational else np.log(nu_j / nu_j.sum())
        has_shares = live.prior.log_shares(log_p_j).any()  # a pool has its own
        log_prior_nj = np.broadcast_to(live.prior.log_items()[: len(q_nj)] + has_shares * log_p_j, q_nj.shape)
        total = 0.0
        for n in np.flatnonzero(live.weight_n):
            gained = float(q_nj[n] @ (message_nj[n] + log_prior_nj[n]) - xlogy(q_nj[n], q_nj[n]).sum())
            total += live.weight_n[n] * gained
        if not rule.variational:
            shares = (rule.share_smoothing * log_p_j).sum() if has_shares else 0.0  # models': as learned
            beside_klj = (rule.pseudo(np.arange(len(log_pi_klj))) + (w * live.votes_klj if w else 0)) / (1 - w)
            return total + float((beside_klj * log_pi_klj).sum() + shares)
        total *= 1 - w
        if w:
            total += w * float((live.votes_klj * log_pi_klj).sum() + live.vote_j @ log_p_j)
        prior_j = np.full_like(nu_j, rule.share_smoothing)
        return total - divergence(self.alpha_klj.transpose(0, 2, 1), rule.pseudo_jl) - divergence(nu_j, prior_j)


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_no_step_falls(method: Any, seed: int) -> None:
    rng, evidence = np.random.default_rng(seed), of_use(method, some_crowd(10 + seed, 15))
    fitted = method.fit(evidence)
    live = method.follow(fitted, evidence)
    live.q_nj[:] = np.where(evidence.known[:, None], live.q_nj, rng.dirichlet(np.ones(3), size=15))
    live._begin(fitted, evidence, live.q_nj)  # from anywhere
    climb = Climb(live)
    first = height = climb.height()
    for step in range(60):
        if step % 2:
            live.judge(rng.choice(15, rng.integers(1, 6), replace=False))
        else:
            climb.estimate(rng.choice(live.labels.n_annotators, rng.integers(1, 4), replace=False))
        assert climb.height() >= height - 1e-9 * abs(height), step
        height = climb.height()
    assert height > first + 0.1


@every_method
def test_one_item_and_one_annotator_are_judged_as_the_equations_say(method: Any) -> None:
    live = follow(method, some_crowd(20))
    live.label("n0", "k0", "j1")
    evidence, rule = live.evidence(), live.rule
    live.judge(np.arange(live.labels.n_items))
    q_nj = live.q_nj.copy()
    f = digamma if rule.variational else np.log
    w = rule.anchor
    taught_kjl = (1 - w) * oracles.counts(evidence.annotations, q_nj * live.weight_n[:, None])
    if w:
        taught_kjl += w * oracles.counts(evidence.annotations, voted(evidence) * live.weight_n[:, None])
    alpha_kjl = taught_kjl + rule.pseudo(np.arange(len(taught_kjl))).transpose(0, 2, 1)
    live.estimate(np.array([2]))
    expected = f(alpha_kjl[2]) - f(alpha_kjl[2].sum(axis=1, keepdims=True))
    np.testing.assert_allclose(live.log_pi_klj[2].T, expected, atol=1e-10)
    prior = np.zeros((len(q_nj), 1))
    if not live.prior.uninformed:
        models = live.prior.pool
        shares, correlation = models.shares.share_j, models.correlation_mm
        prior = oracles.pool(evidence, models.temperatures, shares, correlation=correlation)
    if isinstance(live.prior, FollowedOutputs):
        prior = np.where(evidence.predicted[:, None], prior - np.log(live.prior.share_j), 0.0)
    if live.prior.uninformed or isinstance(live.prior, FollowedOutputs):
        of_votes = rule.share_anchor
        learned_j = (1 - of_votes) * live.share_j + (of_votes * live.vote_j if of_votes else 0)
        raised = learned_j + rule.share_smoothing
        prior = prior + f(raised) - f(raised.sum())
    logits = prior + oracles.messages(evidence.annotations, live.log_pi_klj.transpose(0, 2, 1))
    n = int(np.flatnonzero(~evidence.known)[3])
    live.judge(np.array([n]))
    belief = np.exp(logits[n] - logits[n].max())
    np.testing.assert_allclose(live.q_nj[n], belief / belief.sum(), atol=1e-10)


# -- where the steps rest ------------------------------------------------------------------------------------


@every_method
def test_a_fit_is_where_the_steps_rest(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical_dawid_skene, "ROUNDS", 300)  # until the hierarchy is at rest too
    monkeypatch.setattr(hierarchical_dawid_skene, "AT_REST", 1e-13)
    # In P+L-EM items with few labels teach once: there it rests where all have several.
    evidence = of_use(method, some_crowd(30, 60, asked=1.0 if isinstance(method, PLEM) else 0.4))
    assert (evidence.annotations.labels_per_item == 1).any() or isinstance(method, PLEM)
    fitted = exact(method).fit(evidence)
    live = method.follow(fitted, evidence)
    for _ in range(50):
        live.judge(np.arange(60))
        live.estimate(np.arange(live.labels.n_annotators))
    now = live.snapshot()
    np.testing.assert_allclose(now.probabilities, fitted.probabilities, atol=1e-6)
    for of in ("confusion", "concentration", "labels"):
        np.testing.assert_allclose(getattr(now.annotators, of), getattr(fitted.annotators, of), atol=1e-5)
    np.testing.assert_allclose(now.class_shares, fitted.class_shares, atol=1e-6)
    assert now.annotators.names == fitted.annotators.names
    assert (now.annotators.prior is None) == (fitted.annotators.prior is None)
    assert now.temperatures == fitted.temperatures


@pytest.mark.parametrize("method", [DawidSkene(), DawidSkene(accuracy=0.8, least_labels=2), VBIBCC(shared=False)])
def test_after_changes_the_steps_alone_come_to_rest_at_the_fit(method: Any) -> None:
    """Nothing is learned from all at once by these: no prior in common, no temperature."""
    live = follow(method, some_crowd(31, 60, models=0))
    change_at_random(live, np.random.default_rng(32), 90)
    for _ in range(4000):
        live.judge(np.arange(live.labels.n_items))
        live.estimate(np.arange(live.labels.n_annotators))
    rested = live.snapshot()
    fitted = exact(method).fit(live.evidence(), start=rested)
    np.testing.assert_allclose(rested.probabilities, fitted.probabilities, atol=1e-6)


@every_method
def test_after_changes_refreshing_comes_to_rest_at_the_fit(method: Any) -> None:
    method = exact(method)
    live = follow(method, some_crowd(33, 60))
    change_at_random(live, np.random.default_rng(34), 90, strangers=1)
    first = live.consensus()
    evidence = live.evidence()
    assert first.items == evidence.annotations.items
    for _ in range(60):
        live._behind = True
        last = live.consensus()
    fitted = method.fit(evidence, start=first)
    slack = 1e-5 if isinstance(method, PLEM) else 1e-6  # a temperature is searched to four digits
    np.testing.assert_allclose(last.probabilities, fitted.probabilities, atol=slack)
    np.testing.assert_allclose(last.annotators.concentration, fitted.annotators.concentration, atol=100 * slack)


def test_a_consensus_is_made_once_and_again_when_something_has_changed() -> None:
    live = follow(VBIBCC(), some_crowd(35))
    first = live.consensus()
    assert live.consensus() is first
    live.label("n0", "k0", "j1")
    assert live.consensus() is not first
    assert live.snapshot().fit.converged is False


def test_everything_is_refreshed_before_much_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "REFRESH_LEAST", 3)
    live = follow(VBIBCC(), some_crowd(36))
    refreshed = []
    for change in range(7):
        before = live._consensus
        live.label(f"n{change}", "k1", "j0")
        refreshed.append(live._consensus is not before)
    assert refreshed == [False, False, True, False, False, True, False]


def test_a_fit_from_nothing_follows_when_half_of_the_labels_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "REFRESH_LEAST", 10)
    live = follow(VBIBCC(), some_crowd(38, pool=0, known=0.0))
    fit, fits, changes = live._fit, [], 0
    live._fit = lambda evidence: (fits.append((changes, len(evidence.annotations))), fit(evidence))[1]
    for changes in range(1, 200):
        live.label(f"n{changes % 20}", f"k{changes % 5}", "j0")
    (first, labels), (second, _), *_ = fits
    assert 0.5 * labels <= first < 0.5 * labels + 10
    assert second - first >= 0.5 * labels


def test_those_who_are_not_concerned_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "TURNS", 7)
    live = follow(DawidSkene(), some_crowd(37, pool=0, known=0.0))
    judged: list[int] = []
    estimated: list[int] = []
    judge, estimate = IncrementalEM.judge, IncrementalEM.estimate
    monkeypatch.setattr(IncrementalEM, "judge", lambda self, n: (judged.extend(n), judge(self, n))[1])
    monkeypatch.setattr(IncrementalEM, "estimate", lambda self, k: (estimated.extend(k), estimate(self, k))[1])
    for _ in range(5):
        live.label("n0", "k0", "j1")
    assert set(judged) == set(range(30))
    assert set(estimated) == set(range(6))
