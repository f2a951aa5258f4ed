"""VB-IBCC against Simpson et al. 2011 written out once more, densely, with a bound summed term by term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import digamma, gammaln, logsumexp, softmax

from hitl import score
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import PLEM
from hitl.models.priors.calibrated import learned_prior
from hitl.models.vb_ibcc import VBIBCC, VBIBCCWithModels
from tests import oracles
from tests.oracles import Floats
from tests.pools_of_models import simulated

CROWDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "options beyond the classes": {"n_options": 5, "asked": 0.8},
    "gaps": {"asked": 0.3},
    "items without labels": {"unlabeled": 8, "known": 0.1},
    "known truths": {"known": 0.3},
    "an anonymous pool": {"pool": 60},
    "mostly wrong": {"accuracy": (0.1, 0.4), "known": 0.5},
    "everything": {"n_options": 4, "unlabeled": 5, "known": 0.2, "pool": 40, "asked": 0.5},
}
METHODS: dict[str, dict[str, Any]] = {
    "the paper's": {"shared": False},
    "shared": {"shared": True},
    "other settings": {"diagonal": 3.0, "off": 0.5, "share_smoothing": 2.5, "least_labels": 2},
}
everywhere = pytest.mark.parametrize("shape", CROWDS.values(), ids=CROWDS)
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def some_crowd(shape: dict[str, Any], seed: int = 0, n_items: int = 60) -> Evidence:
    return oracles.crowd(np.random.default_rng(seed), n_items, 6, 3, **shape)[0]


# -- the paper once more -------------------------------------------------------------------------------------


@dataclass
class Plain:
    """Where plain variational Bayes stands: q(z), q(p) = Dir(nu), q(pi) = Dir(alpha), and the rows' prior a."""

    q_nj: Floats
    nu_j: Floats
    alpha_kjl: Floats
    a_jl: Floats


class Setting:
    """The evidence as dense arrays, and the priors."""

    def __init__(self, evidence: Evidence, method: VBIBCC) -> None:
        e = evidence.annotations
        self.x_nkl = np.zeros((e.n_items, e.n_annotators, e.n_options))
        for n, k, l in zip(e.item, e.annotator, e.label, strict=True):  # noqa: E741
            self.x_nkl[n, k, l] += 1
        self.truth, self.method = evidence.truth, method
        self.a0_jl = np.full((e.n_classes, e.n_options), method.off)
        for j in range(e.n_classes):
            self.a0_jl[j, j] = method.diagonal
        self.teaches_n = (self.x_nkl.sum(axis=(1, 2)) >= method.least_labels) | (self.truth >= 0)
        votes_nj = self.x_nkl[:, :, : e.n_classes].sum(axis=1)
        start_nj = votes_nj + 1 / e.n_classes
        self.start_nj = self.told(start_nj / start_nj.sum(axis=1, keepdims=True))

    def told(self, q_nj: Floats) -> Floats:
        q_nj = q_nj.copy()
        for n, j in enumerate(self.truth):
            if j >= 0:
                q_nj[n] = np.eye(q_nj.shape[1])[j]
        return q_nj

    def taught(self, q_nj: Floats) -> tuple[Floats, Floats]:
        """(J,) items and (K, J, L) labels of each class."""
        q_nj = q_nj * self.teaches_n[:, None]
        return q_nj.sum(axis=0), np.einsum("nj,nkl->kjl", q_nj, self.x_nkl)

    def learned(self, q_nj: Floats, a_jl: Floats, sweeps: int) -> Plain:
        """Equations 17 and 22."""
        n_j, n_kjl = self.taught(q_nj)
        for _ in range(sweeps if self.method.shared else 0):
            a_jl = oracles.raised_prior(a_jl, n_kjl, self.a0_jl)
        return Plain(q_nj, self.method.share_smoothing + n_j, a_jl + n_kjl, a_jl)

    def judged(self, at: Plain) -> Plain:
        """Equations 18, 23 and 7."""
        log_kappa_j, log_pi_kjl = expected_logs(at)
        log_q_nj = log_kappa_j + np.einsum("kjl,nkl->nj", log_pi_kjl, self.x_nkl)
        q_nj = np.exp(log_q_nj - log_q_nj.max(axis=1, keepdims=True))
        return replace(at, q_nj=self.told(q_nj / q_nj.sum(axis=1, keepdims=True)))

    def solved(self, iterations: int, sweeps: int = 1) -> Plain:
        """Plain iterations from the votes; how many sweeps each makes for the prior does not change where they end."""
        at = Plain(self.start_nj, np.ones(1), np.ones(1), self.a0_jl)
        for _ in range(iterations):
            last = at.q_nj
            at = self.judged(self.learned(at.q_nj, at.a_jl, sweeps))
            if iterations > 10 and np.abs(at.q_nj - last).max() < 1e-14:
                break
        return at

    def bound(self, at: Plain) -> float:
        """E ln p(labels, z, p, pi, a) and the entropies of q."""
        nu_0 = self.method.share_smoothing
        log_kappa_j, log_pi_kjl = expected_logs(at)
        total = 0.0
        for n in np.flatnonzero(self.teaches_n):
            explained_j = log_kappa_j + np.einsum("kjl,kl->j", log_pi_kjl, self.x_nkl[n])
            total += float(at.q_nj[n] @ explained_j) + stats.entropy(at.q_nj[n])
        total += float((nu_0 - 1) * log_kappa_j.sum() + gammaln(3 * nu_0) - 3 * gammaln(nu_0))
        total += stats.dirichlet.entropy(at.nu_j)
        for k, j in np.ndindex(at.alpha_kjl.shape[:2]):
            a = at.a_jl[j]
            total += float((a - 1) @ log_pi_kjl[k, j] + gammaln(a.sum()) - gammaln(a).sum())
            total += stats.dirichlet.entropy(at.alpha_kjl[k, j])
        if self.method.shared:  # the program leaves out the hyper-prior's normaliser, which depends on nothing
            total += float((stats.gamma(self.a0_jl + 1).logpdf(at.a_jl) + gammaln(self.a0_jl + 1)).sum())
        return total

    def found(self, consensus: Consensus) -> Plain:
        """The same of what the program reports."""
        people = consensus.annotators
        nu_j = consensus.class_shares * (3 * self.method.share_smoothing + self.taught(self.start_nj)[0].sum())
        return Plain(consensus.probabilities, nu_j, people.concentration, people.prior)


def expected_logs(at: Plain) -> tuple[Floats, Floats]:
    return (
        digamma(at.nu_j) - digamma(at.nu_j.sum()),
        digamma(at.alpha_kjl) - digamma(at.alpha_kjl.sum(axis=2, keepdims=True)),
    )


def to_the_last_bit(iterations: int = 200, **settings: Any) -> VBIBCC:
    """A method that does not stop where its gain is lost in rounding, which is at beliefs good to 1e-7 only."""
    method = VBIBCC(**settings, max_iterations=iterations)
    object.__setattr__(method, "tolerance", -1.0)
    return method


@every_method
@everywhere
def test_it_agrees_with_a_dense_plain_implementation(shape: dict[str, Any], method: dict[str, Any]) -> None:
    evidence = some_crowd(shape, 1)
    consensus = to_the_last_bit(**method).fit(evidence)
    setting = Setting(evidence, VBIBCC(**method))
    expected = setting.solved(5000)
    np.testing.assert_allclose(consensus.probabilities, expected.q_nj, atol=1e-8)
    np.testing.assert_allclose(consensus.class_shares, expected.nu_j / expected.nu_j.sum(), atol=1e-8)
    np.testing.assert_allclose(consensus.annotators.concentration, expected.alpha_kjl, atol=1e-8)
    np.testing.assert_allclose(consensus.annotators.prior, expected.a_jl, atol=1e-8)
    assert consensus.fit.objective[-1] == pytest.approx(setting.bound(expected), abs=1e-8)
    usual = VBIBCC(**method, tolerance=1e-14, max_iterations=5000).fit(evidence)
    assert usual.fit.converged
    np.testing.assert_allclose(usual.probabilities, expected.q_nj, atol=1e-5)


# -- the bound -----------------------------------------------------------------------------------------------


@every_method
@everywhere
def test_the_trace_is_the_bound_term_by_term(shape: dict[str, Any], method: dict[str, Any]) -> None:
    evidence = some_crowd(shape, 4)
    setting = Setting(evidence, VBIBCC(**method))
    for iterations in (1, 5, 40):
        consensus = VBIBCC(**method, tolerance=1e-14, max_iterations=iterations).fit(evidence)
        assert consensus.fit.objective[-1] == pytest.approx(setting.bound(setting.found(consensus)), abs=1e-8)


def log_evidence(setting: Setting, a_jl: Floats) -> float:
    """ln p(labels, known truths | a): every truth, with p and pi integrated out (Dirichlet-multinomial)."""

    nu_0 = np.full(3, setting.method.share_smoothing)
    allowed = [range(3) if t < 0 else [int(t)] for t in setting.truth]
    terms = []
    for z in product(*allowed):
        z_nj = np.eye(3)[list(z)]
        n_kjl = np.einsum("nj,nkl->kjl", z_nj, setting.x_nkl)
        people = oracles.log_beta(a_jl + n_kjl) - len(n_kjl) * oracles.log_beta(a_jl)
        terms.append(oracles.log_beta(nu_0 + z_nj.sum(axis=0)) - oracles.log_beta(nu_0) + people)
    return float(logsumexp(terms))


TINY = {"six items": {}, "one known": {"known": 0.2}, "unsure": {"n_options": 4}, "a pool": {"pool": 8}}


@pytest.mark.parametrize("shape", TINY.values(), ids=TINY)
@pytest.mark.parametrize("shared", [False, True])
def test_the_bound_is_below_the_log_evidence(shape: dict[str, Any], shared: bool) -> None:
    """And not far below: the gap is the divergence of q from the posterior."""
    for seed in range(3):
        evidence = oracles.crowd(np.random.default_rng(seed), 6, 3, 3, asked=1.0, **shape)[0]
        method = VBIBCC(shared=shared, tolerance=1e-12)
        setting, consensus = Setting(evidence, method), method.fit(evidence)
        a_jl = consensus.annotators.prior
        above = log_evidence(setting, a_jl)
        if shared:
            above += float((setting.a0_jl * np.log(a_jl) - a_jl).sum())
        assert above - 3 < consensus.fit.objective[-1] < above


@pytest.mark.parametrize("shared", [False, True])
def test_where_all_is_known_the_bound_is_the_log_evidence(shared: bool) -> None:
    evidence = some_crowd({"known": 1.0, "n_options": 4, "pool": 10}, 5, 20)
    method = VBIBCC(shared=shared, tolerance=1e-13, max_iterations=5000)
    consensus = method.fit(evidence)
    setting, a_jl = Setting(evidence, method), consensus.annotators.prior
    expected = log_evidence(setting, a_jl)
    if shared:
        expected += float((setting.a0_jl * np.log(a_jl) - a_jl).sum())
        # Here the prior learned is the one that makes the labels most probable.
        for seed in range(20):
            moved = a_jl * np.exp(0.05 * np.random.default_rng(seed).normal(size=a_jl.shape))
            moved = np.minimum(moved, np.diag(moved[:, :3])[:, None])
            at = log_evidence(setting, moved) + float((setting.a0_jl * np.log(moved) - moved).sum())
            assert at < expected
    assert consensus.fit.objective[-1] == pytest.approx(expected, abs=1e-9)


@every_method
def test_at_the_end_no_nearby_beliefs_or_parameters_are_better(method: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    evidence = some_crowd({"n_options": 4, "known": 0.2, "pool": 20, "unlabeled": 3}, 6, 30)
    setting = Setting(evidence, VBIBCC(**method))
    at = setting.found(to_the_last_bit(**method).fit(evidence))
    best = setting.bound(at)
    free_n = (setting.truth < 0) & setting.teaches_n
    for trial in range(40):
        size, part = 10.0 ** -rng.uniform(0.5, 3), ("q_nj", "nu_j", "alpha_kjl", "a_jl")[trial % 4]
        value = getattr(at, part)
        moved = value * np.exp(size * rng.normal(size=value.shape))
        if part == "q_nj":
            moved = np.where(free_n[:, None], moved / moved.sum(axis=1, keepdims=True), value)
        if part == "a_jl":
            if not setting.method.shared:
                continue
            moved = np.minimum(moved, np.diag(moved[:, :3])[:, None])
        assert setting.bound(replace(at, **{part: moved})) <= best + 1e-9, (part, size)


# -- what it is for ------------------------------------------------------------------------------------------


def answers(rng: np.random.Generator, prior_jl: Floats, n_items: int) -> tuple[Annotations, NDArray[np.int64]]:
    """400 people with 300 labels each, simulated from the model; k400 with 3 and k401 with 3,000 always say 2."""
    truth = rng.integers(3, size=n_items)
    rows = [(n, k) for k in range(400) for n in rng.choice(n_items, 300, replace=False)]
    rows += [(n, 400) for n in range(3)] + [(n, 401) for n in range(3000)]
    item, annotator = np.array(rows).T
    pi_kjl = np.array([[rng.dirichlet(a) for a in prior_jl] for _ in range(400)])
    chance = pi_kjl[np.minimum(annotator, 399), truth[item]].cumsum(axis=1)
    label = (rng.random(len(item))[:, None] > chance[:, :2]).sum(axis=1)
    label[annotator >= 400] = 2
    people = oracles.names("k", 402)
    return Annotations(item, annotator, label, tuple(range(n_items)), people, (0, 1, 2), (0, 1, 2)), truth


def test_the_shared_prior_is_that_of_the_people_who_answered() -> None:
    """And three labels leave a person with the crowd; three thousand do not."""
    prior_jl = np.array([[6.0, 1.5, 1.0], [1.0, 5.0, 2.0], [0.8, 1.2, 4.0]])
    annotations, truth = answers(np.random.default_rng(1), prior_jl, 6000)
    simulated = annotations.select(annotations.annotator < 400)
    consensus = VBIBCC().fit(Evidence(simulated))
    assert score.accuracy(consensus.probabilities, truth) > 0.99
    found, told = consensus.annotators.prior, VBIBCC().fit(Evidence(simulated, truth=truth)).annotators.prior
    np.testing.assert_allclose(found, told, rtol=0.02)
    assert found.sum() == pytest.approx(prior_jl.sum(), rel=0.06)  # a row's total is known to 5 % from 400 people
    np.testing.assert_allclose(found, prior_jl, rtol=0.15)
    mean = found / found.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mean, prior_jl / prior_jl.sum(axis=1, keepdims=True), atol=0.02)
    everybody = VBIBCC().fit(Evidence(annotations)).annotators
    mean = everybody.prior / everybody.prior.sum(axis=1, keepdims=True)
    few, many = everybody.confusion[400:]
    np.testing.assert_allclose(few[:2], mean[:2], atol=0.2)
    assert (few.argmax(axis=1) == [0, 1, 2]).all()
    np.testing.assert_allclose(many[:, 2], 1, atol=0.01)
    low, high = everybody.interval
    assert high[400] - low[400] > 5 * (high[401] - low[401])


# -- other items, other people, other settings ---------------------------------------------------------------


def test_new_items_and_strangers_are_judged_by_hand_computation() -> None:
    learned = VBIBCC().fit(some_crowd({"n_options": 4}, 11))
    annotations = Annotations.from_frame(
        {"item": ["new", "new", "new"], "annotator": ["k1", "k0", "stranger"], "label": ["j2", "unsure0", "j1"]},
        items=["new", "unlabeled", "told"],
        classes=learned.classes,
        options=learned.annotators.options,
    )
    judged = VBIBCC().apply(learned, Evidence(annotations, truth=np.array([-1, -1, 1])))

    def log_pi(alpha_jl: Floats, option: int) -> Floats:
        return digamma(alpha_jl[:, option]) - digamma(alpha_jl.sum(axis=1))

    alpha, stranger = learned.annotators.concentration, learned.annotators.prior
    assert not np.allclose(stranger, np.ones((3, 4)) + np.eye(3, 4), atol=0.1)
    expected = learned.class_shares * np.exp(log_pi(alpha[1], 2) + log_pi(alpha[0], 3) + log_pi(stranger, 1))
    np.testing.assert_allclose(judged.probabilities[0], expected / expected.sum(), atol=1e-12)
    np.testing.assert_allclose(judged.probabilities[1], learned.class_shares, atol=1e-12)
    np.testing.assert_array_equal(judged.probabilities[2], [0, 1, 0])
    assert judged.items == annotations.items
    assert judged.annotators is learned.annotators
    # Without a shared prior a stranger is at the settings'.
    alone = VBIBCC(shared=False).fit(some_crowd({"n_options": 4}, 11))
    concentration = VBIBCC(shared=False).concentration(alone, annotations)
    np.testing.assert_array_equal(
        concentration[annotations.annotators.index("stranger")], np.ones((3, 4)) + np.eye(3, 4)
    )


# -- beside models ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [0.0, 0.3])
def test_beliefs_are_a_fixed_point_of_eq_7_with_the_pool_as_prior(known: float) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 60, 5, 3, models=2, abstaining=0.2, known=known)
    found = VBIBCCWithModels(tolerance=1e-12).fit(evidence)
    alpha_kjl = found.annotators.prior + oracles.counts(evidence.annotations, found.probabilities)
    np.testing.assert_allclose(found.annotators.concentration, alpha_kjl, atol=1e-4)
    log_pi_kjl = digamma(alpha_kjl) - digamma(alpha_kjl.sum(axis=2, keepdims=True))
    logits = learned_prior(found, evidence).log_prior() + oracles.messages(evidence.annotations, log_pi_kjl)
    expected = softmax(logits, axis=1)
    expected[evidence.known] = np.eye(3)[evidence.truth[evidence.known]]
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-4)
    assert (np.diff(found.fit.objective) > -1e-8).all()


def test_it_is_better_than_annotators_or_models_alone() -> None:
    evidence, truth = simulated(3, 1000, 2, right=0.8)
    (model,) = evidence.probabilities.values()
    together = VBIBCCWithModels().fit(evidence)
    apart = VBIBCC().fit(Evidence(evidence.annotations)).probabilities, model
    error = [score.log_loss(p, truth) for p in (together.probabilities, *apart, PLEM().fit(evidence).probabilities)]
    assert error[0] < 0.8 * min(error[1:3])
    assert error[0] < 1.1 * error[3]
