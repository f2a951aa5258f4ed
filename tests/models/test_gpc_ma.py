"""GPC-MA against a textbook EP, simulated annotators and itself; its baselines; what a consensus keeps of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models import GPCMA, DawidSkene, GPCConcatenated, GPCGold, GPCMajority
from hitl.models.annotators import confusion
from hitl.models.annotators.leave_one_out import counts_by_others
from hitl.models.inference import em, latent_classes
from hitl.models.inference import expectation_propagation as ep
from hitl.models.inference.expectation_propagation import Likelihoods
from hitl.models.numerics.covariance import SquaredExponential
from hitl.models.priors.gp import GaussianProcess
from hitl.testing.crowds import crowd
from tests.models.inference.test_expectation_propagation import one_by_one

SENSITIVITY = np.array([0.9, 0.9, 0.8, 0.4, 0.3, 0.4, 0.6])  # of Rodrigues 2014, table 1
SPECIFICITY = np.array([0.8, 0.9, 0.9, 0.4, 0.5, 0.5, 0.5])
METHODS = [GPCMA(), GPCGold(), GPCMajority(), GPCConcatenated()]


def rings(seed: int, n: int = 90, labeled: int = 60) -> tuple[Evidence, Ints]:
    """A ring around a disk, no line between them; the first items are labeled by the paper's seven annotators."""
    rng = np.random.default_rng(seed)
    x_nd = rng.normal(size=(n, 2))
    truth = (np.sum(x_nd**2, axis=1) > 1.4).astype(np.int32)
    chance = np.where(truth[:, None] == 1, SENSITIVITY, 1 - SPECIFICITY)
    said = (rng.random(chance.shape) < chance).astype(int)
    said[labeled:] = -1
    return Evidence(Annotations.from_matrix(said, classes=["disk", "ring"]), features=x_nd), truth


def accuracy(consensus: Consensus, truth: Ints, rows: slice = slice(None)) -> float:
    return float(np.mean(consensus.codes[rows] == truth[rows]))


# -- against other ways to compute it ------------------------------------------------------------------------


def test_one_perfect_annotator_is_gaussian_process_classification() -> None:
    """Of every item the truth: the latents are those of EP as Rasmussen & Williams 2006 print it."""
    rng = np.random.default_rng(0)
    x_nd = rng.normal(size=(25, 2))
    truth = (x_nd[:, 0] + 0.3 * rng.normal(size=25) > 0).astype(int)
    said = Evidence(Annotations.from_matrix(truth[:, None], classes=[0, 1]), features=x_nd)
    found = GPCMA(right=1e9, wrong=1 + 1e-9).fit(said)
    kernel = SquaredExponential.expected(2, False).at(found.parameters["kernel"][0])
    sure = np.where(truth == 1, 0.0, -np.inf)[None], np.where(truth == 1, -np.inf, 0.0)[None]
    z_nd = (x_nd - x_nd.mean(axis=0)) / x_nd.std(axis=0)
    mean, covariance, _ = one_by_one(kernel.over(z_nd), Likelihoods(*sure, np.ones((1, 25))))
    np.testing.assert_allclose(found.parameters["latent mean"][0], mean, atol=1e-3)
    np.testing.assert_allclose(found.parameters["latent variance"][0], covariance.diagonal(), atol=1e-3)
    gold = GPCGold().fit(replace(said, truth=truth.astype(np.int32)))
    np.testing.assert_allclose(gold.parameters["latent mean"][0], mean, atol=0.05)
    assert (found.annotators.accuracy > 0.99).all()


def test_labels_left_out_are_divided_out() -> None:
    evidence, _ = crowd(np.random.default_rng(2), 12, 4, 3, 4, known=0.3)
    annotations, rng = evidence.annotations, np.random.default_rng(3)
    q_nj = np.where(evidence.known[:, None], np.eye(3)[evidence.truth], rng.dirichlet(np.ones(3), size=12))
    log_pi_klj = np.log(rng.dirichlet(np.ones(4), size=(4, 3)).transpose(0, 2, 1))
    counted = np.arange(12) != 5
    expected = np.zeros((4, 4, 3))
    for n, k, said in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        if counted[n]:
            left = q_nj[n] / np.exp(log_pi_klj[k, said])
            expected[k, said] += left / left.sum()
    np.testing.assert_allclose(counts_by_others(evidence, q_nj, counted, log_pi_klj), expected, atol=1e-12)


# -- what it is for ------------------------------------------------------------------------------------------


def test_the_baselines_are_behind() -> None:
    """On average over some sets: gold >= ours > both that know no annotators, on items that nobody labeled."""
    rows, scores = slice(100, None), []
    for seed in range(4):
        evidence, truth = rings(seed, n=400, labeled=100)
        gold = replace(evidence, truth=np.where(np.arange(400) < 100, truth, -1))
        fits = [
            GPCGold().fit(gold),
            GPCMA().fit(evidence),
            GPCConcatenated().fit(evidence),
            GPCMajority().fit(evidence),
        ]
        scores.append([accuracy(found, truth, rows) for found in fits])
    known, ours, concatenated, majority = np.mean(scores, axis=0)
    assert known > ours - 0.01
    assert ours > max(concatenated, majority) + 0.02


# -- several classes, missing features, hard data ------------------------------------------------------------


def test_a_question_is_one_class_against_the_rest() -> None:
    said = Annotations.from_frame(
        {"item": [1, 1, 2, 3], "annotator": [1, 2, 1, 1], "label": ["a", "unsure", "c", "b"]},
        classes=["a", "b", "c"],
        options=["a", "b", "c", "unsure"],
    )
    asked = latent_classes.question(Evidence(said, truth=np.array([0, 2, -1])), 2)
    assert asked.annotations.label.tolist() == [0, 2, 1, 0]
    assert (asked.annotations.n_classes, asked.annotations.n_options) == (2, 3)
    assert asked.truth is not None
    assert asked.truth.tolist() == [0, 1, -1]
    pseudo = np.arange(12.0).reshape(3, 4)
    rest = pseudo[:2].mean(axis=0)
    expected = [[rest[0] + rest[1], rest[2], rest[3]], [pseudo[2, 0] + pseudo[2, 1], pseudo[2, 2], pseudo[2, 3]]]
    np.testing.assert_allclose(latent_classes.collapsed(pseudo, said, 2), expected)


def test_an_item_without_features_has_the_class_share() -> None:
    """Nine of ten items are of class 1: so is, probably, one of which nothing is known."""
    rng = np.random.default_rng(6)
    x_nd = np.vstack((rng.normal(size=(60, 2)), [[np.nan, np.nan]]))
    message_nj = np.zeros((61, 2))
    message_nj[:60] = np.where(np.arange(60)[:, None] % 10 == 0, [0.0, -np.inf], [-np.inf, 0.0])
    prior = replace(GaussianProcess.unlearned(x_nd, False), held=True, sweeps=200)
    belief = prior.posterior(message_nj, np.ones(61, bool)).q_nj[60, 1]
    assert 0.75 < belief < 0.95


def test_a_hundred_random_starts_on_hard_data_are_finite() -> None:
    """Contradicting labels, known truth against them, copies of points, constant features, kernels far off."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        evidence, _ = crowd(rng, 24, 4, 2, known=0.3, accuracy=(0.05, 0.95), unlabeled=3)
        x_nd = np.column_stack((np.repeat(rng.normal(size=8), 3), np.zeros(24), 100 * rng.standard_t(1.5, size=24)))
        prior = GaussianProcess.unlearned(x_nd, bool(rng.integers(2)))
        far = prior.kernel.at(prior.kernel.theta + 2 * rng.normal(size=prior.kernel.theta.size))
        sites = np.stack((5 * rng.normal(size=(1, 24)), 3 * rng.normal(size=(1, 24))))
        people = confusion.Confusion.unlearned(confusion.on_the_diagonal(2, 2, 7, 2), 4)
        q_nj = rng.dirichlet(np.ones(2), size=24)
        begun = replace(prior, kernel=far, sites=sites)
        found = em.run_em(evidence, begun, people, q_nj, tolerance=1e-4, max_iterations=15)
        assert np.isfinite(found.q_nj).all()
        assert np.isfinite(found.objective).all()
        np.testing.assert_allclose(found.q_nj.sum(axis=1), 1)
        assert np.isfinite(found.prior.kernel.theta).all()


# -- what a consensus keeps ----------------------------------------------------------------------------------


def counted_fit(
    method: GPCMA, evidence: Evidence, start: Consensus | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[Consensus, int]:
    """The fit, and how many N^3 it took."""
    calls, plain = [0], ep.gaussian

    def gaussian(l_nr: Floats, sites: Floats) -> ep.Gaussian | None:
        calls[0] += 1
        return plain(l_nr, sites)

    with monkeypatch.context() as patch:
        patch.setattr(ep, "gaussian", gaussian)
        return method.fit(evidence, start=start), calls[0]


def test_from_an_earlier_answer_new_labels_cost_a_fifth_and_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """In factorisations (docs/benchmarks/gpc.txt has the times)."""
    costs = []
    for seed in range(3):
        evidence, _ = rings(seed, n=160, labeled=120)
        annotations = evidence.annotations
        old = replace(evidence, annotations=annotations.select(np.arange(len(annotations)) < len(annotations) - 10))
        before = Consensus.from_bytes(GPCMA().fit(old).to_bytes())
        cold, dear = counted_fit(GPCMA(), evidence, None, monkeypatch)
        warm, cheap = counted_fit(GPCMA(), evidence, before, monkeypatch)
        np.testing.assert_allclose(warm.probabilities, cold.probabilities, atol=0.02)
        np.testing.assert_allclose(warm.annotators.confusion, cold.annotators.confusion, atol=0.01)
        costs.append(cheap / dear)
    assert np.mean(costs) <= 0.2


@pytest.mark.parametrize("method", METHODS)
def test_other_items_are_judged_as_if_they_had_been_there_unlabeled(method: GPCMA) -> None:
    evidence, truth = rings(8)
    known = np.where(np.arange(90) < 30, truth, -1) if isinstance(method, GPCGold) else None
    annotations, features = evidence.annotations, evidence.features
    assert features is not None
    here = replace(annotations, items=annotations.items[:60])
    learned = method.fit(Evidence(here, features=features[:60], truth=None if known is None else known[:60]))
    nobody = replace(annotations.select(np.zeros(len(annotations), bool)), items=tuple(range(100, 190)))
    p = method.apply(learned, Evidence(nobody, features=features)).probabilities
    kept = learned.parameters
    expected = kept["latent mean"] / np.sqrt(1 + kept["latent variance"])
    from scipy.special import ndtr

    np.testing.assert_allclose(p[:60, 1], ndtr(expected[0]), atol=1e-6)
    assert np.mean((p[60:, 1] > 0.5) == truth[60:]) > (0.5 if method != METHODS[0] else 0.75)


def test_labels_of_other_items_count_beside_features() -> None:
    evidence, _ = rings(9)
    learned = GPCMA().fit(evidence)
    best = int(np.argmax(learned.annotators.accuracy))
    one = Annotations.from_frame({"item": ["new"], "annotator": [best], "label": ["ring"]}, classes=["disk", "ring"])
    new = Evidence(one, features=np.array([[1.2, 0.3]]))
    labeled = GPCMA().apply(learned, new)
    silent = GPCMA().apply(learned, replace(new, annotations=one.select(np.zeros(1, bool))))
    pi, p = learned.annotators.confusion[best], silent.probabilities[0]
    np.testing.assert_allclose(labeled.probabilities[0], p * pi[:, 1] / (p @ pi[:, 1]), atol=1e-9)


def test_what_does_not_fit_is_said() -> None:
    evidence, _ = rings(0)
    learned = GPCMA().fit(evidence)
    with pytest.raises(BadEvidence, match="features: found 3 columns; the consensus was estimated with 2"):
        GPCMA().apply(learned, replace(evidence, features=np.zeros((90, 3))))
    with pytest.raises(BadEvidence, match="gpc-ma needs features"):
        GPCMA().apply(learned, replace(evidence, features=None))
    other = DawidSkene().fit(Evidence(evidence.annotations))
    with pytest.raises(BadEvidence, match="dawid-skene has no Gaussian process"):
        GPCMA().apply(other, evidence)
    np.testing.assert_array_equal(GPCMA().fit(evidence, start=other).codes, learned.codes)
    with pytest.raises(BadSettings, match="wrong is 1"):
        GPCMA(wrong=1)
    with pytest.raises(BadSettings, match="tolerance"):
        GPCMajority(tolerance=0)


def test_equal_majorities_share_an_item() -> None:
    annotations = Annotations.from_matrix([[0, 1, -1], [0, 0, 1], [-1, -1, -1]])
    np.testing.assert_allclose(GPCMajority().seen(annotations), [[0.5, 0.5], [1, 0], [0, 0]])
    np.testing.assert_allclose(GPCConcatenated().seen(annotations), [[1, 1], [2, 1], [0, 0]])
