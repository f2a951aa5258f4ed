"""Dawid–Skene and the one EM loop: every step has its own oracle, and the objective never falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl import score
from hitl.annotations import Annotations
from hitl.demo.recorded import rte
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.dawid_skene import DawidSkene
from hitl.models.default import DefaultCombiner
from hitl.models.inference import em, loop
from hitl.models.majority import MajorityVote
from hitl.models.numerics.clamping import clamp
from hitl.models.priors.shares import Shares
from tests import oracles, steps

FIVE = {
    "plain": {},
    "two known truths": {"known": 0.4},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 5},
    "an anonymous pool": {"pool": 6},
    "items without labels": {"unlabeled": 2, "known": 0.3},
}


def some_confusion(rng: np.random.Generator, annotations: Annotations) -> oracles.Floats:
    shape = (annotations.n_annotators, annotations.n_classes)
    return rng.dirichlet(np.ones(annotations.n_options), size=shape)


# -- E-step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_the_e_step_agrees_with_all_truths_of_five_items(shape: dict[str, float]) -> None:
    rng = np.random.default_rng(11)
    evidence, _ = oracles.crowd(rng, 5, 4, 3, **shape)
    pi_kjl = some_confusion(rng, evidence.annotations)
    share_j = rng.dirichlet(np.ones(3))
    found = em.expectation(evidence, Shares(share_j), np.log(pi_kjl).transpose(0, 2, 1))
    q_nj, log_evidence = found.q_nj, found.log_evidence
    expected, log_expected = oracles.enumerate_truths(evidence, np.tile(np.log(share_j), (5, 1)), np.log(pi_kjl))
    np.testing.assert_allclose(q_nj, expected, atol=1e-12)
    assert log_evidence == pytest.approx(log_expected, abs=1e-10)


# -- M-step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_no_nearby_confusion_matrices_or_shares_are_better(shape: dict[str, float]) -> None:
    rng = np.random.default_rng(12)
    evidence, _ = oracles.crowd(rng, 8, 4, 3, **shape)
    annotations = evidence.annotations
    q_nj = clamp(rng.dirichlet(np.ones(3), size=8), evidence)
    informative = (annotations.labels_per_item > 0) | evidence.known
    for pseudo in (
        confusion.even_pseudo_counts(3, annotations.n_options, 0.01),
        confusion.accurate_pseudo_counts(3, annotations.n_options, 0.8, 0.3),
    ):
        prior = Shares.even(3, 0.7)
        people = confusion.Confusion.unlearned(pseudo, evidence.annotations.n_annotators)
        counts_klj, people, learned = steps.maximisation(evidence, prior, people, q_nj, informative)
        log_pi_klj = people.log_pi_klj
        np.testing.assert_allclose(counts_klj.transpose(0, 2, 1), oracles.counts(annotations, q_nj), atol=1e-12)
        better = oracles.beaten_by_a_neighbour(
            lambda pi: oracles.confusion_objective(evidence, q_nj, pi, pseudo),  # noqa: B023
            np.exp(log_pi_klj).transpose(0, 2, 1),
            rng,
        )
        assert better is None, better
        better = oracles.beaten_by_a_neighbour(
            lambda share: float((q_nj[informative].sum(axis=0) + 0.7) @ np.log(share)), learned.share_j, rng
        )
        assert better is None, better


# -- the loop ------------------------------------------------------------------------------------------------


def log_posterior(evidence: Evidence, pi_kjl: oracles.Floats, share_j: oracles.Floats, pseudo: oracles.Floats) -> float:
    """Labels and known truths given the parameters, truths summed out, plus the log prior; plain sums."""
    annotations = evidence.annotations
    joint = np.log(share_j)[None] + oracles.messages(annotations, np.log(pi_kjl))
    total = 0.0
    for n in range(annotations.n_items):
        known = int(evidence.truth[n])
        total += joint[n, known] if known >= 0 else np.log(np.exp(joint[n]).sum())
    return float(total + (pseudo * np.log(pi_kjl)).sum() + 0.01 * np.log(share_j).sum())


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_the_trace_is_the_log_posterior_of_the_parameters(shape: dict[str, float]) -> None:
    rng = np.random.default_rng(13)
    evidence, _ = oracles.crowd(rng, 12, 4, 3, **shape)
    pseudo = confusion.even_pseudo_counts(3, evidence.annotations.n_options, 0.05)
    q_nj = MajorityVote().fit(evidence).probabilities
    informative = (evidence.annotations.labels_per_item > 0) | evidence.known
    expected = []
    belief, prior = clamp(q_nj, evidence), Shares.even(3, 0.01)
    people = confusion.Confusion.unlearned(pseudo, evidence.annotations.n_annotators)
    for _ in range(3):
        _, people, prior = steps.maximisation(evidence, prior, people, belief, informative)
        expected.append(log_posterior(evidence, np.exp(people.log_pi_klj).transpose(0, 2, 1), prior.share_j, pseudo))
        belief = em.expectation(evidence, prior, people.log_pi_klj).q_nj
    estimate = em.run_em(evidence, Shares.even(3, 0.01), people, q_nj, tolerance=0.0, max_iterations=3)
    np.testing.assert_allclose(estimate.objective[: len(expected)], expected[: len(estimate.objective)], atol=1e-8)


def test_convergence_is_a_value() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(0), 60, 6, 3)
    done = DawidSkene().fit(evidence).fit
    assert done.converged
    assert done.iterations < 1000
    assert done.objective[-1] - done.objective[-2] < 1e-7 * 60 <= done.objective[-2] - done.objective[-3]
    stopped = DawidSkene(max_iterations=3).fit(evidence).fit
    assert (stopped.converged, stopped.iterations) == (False, 3)


def test_momentum_saves_iterations_and_ends_nearer_to_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 200, 8, 3, asked=0.5, accuracy=(0.4, 0.8))
    method = DawidSkene(tolerance=1e-9)
    fast = method.fit(evidence).fit
    monkeypatch.setattr(loop, "MOMENTUM_BELOW", 0.0)
    plain = method.fit(evidence).fit
    top = replace(method, tolerance=1e-13, max_iterations=5000).fit(evidence).fit.objective[-1]
    assert fast.iterations < 0.6 * plain.iterations
    assert top - fast.objective[-1] < top - plain.objective[-1]


# -- from an earlier fit, and on items not seen --------------------------------------------------------------


def test_people_met_for_the_first_time_on_their_own_items_are_no_trap() -> None:
    rng = np.random.default_rng(20)
    evidence, truth = oracles.crowd(rng, 200, 8, 3, asked=1.0)
    a = evidence.annotations
    apart = a.select((a.item < 100) == (a.annotator < 4))  # two crowds that share neither items nor people
    start = DawidSkene().fit(Evidence(apart.select(apart.item < 100)))
    warm = DawidSkene().fit(Evidence(apart), start=start)
    cold = DawidSkene().fit(Evidence(apart))
    assert warm.fit.objective[-1] == pytest.approx(cold.fit.objective[-1], abs=0.01)
    assert score.accuracy(warm.probabilities[100:], truth[100:]) > 0.75


def test_new_items_are_judged_by_hand_computation() -> None:
    learned = DawidSkene().fit(oracles.crowd(np.random.default_rng(23), 80, 3, 3)[0])
    annotations = Annotations.from_frame(
        {"item": ["new", "new", "new"], "annotator": ["k1", "k0", "stranger"], "label": ["j2", "j0", "j1"]},
        items=["new", "unlabeled"],
        classes=["j0", "j1", "j2"],
    )
    judged = DawidSkene().apply(learned, Evidence(annotations))
    pi, share = learned.annotators.confusion, learned.class_shares
    given = learned.annotators.labels
    average = np.einsum("k,kjl->jl", given / given.sum(), pi)  # what to expect of a stranger: the crowd so far
    expected = share * pi[1, :, 2] * pi[0, :, 0] * average[:, 1]
    np.testing.assert_allclose(judged.probabilities[0], expected / expected.sum(), atol=1e-12)
    np.testing.assert_allclose(judged.probabilities[1], share, atol=1e-12)
    assert judged.items == ("new", "unlabeled")
    assert judged.annotators is learned.annotators


# -- real people ---------------------------------------------------------------------------------------------


def test_with_two_labels_needed_an_item_with_one_teaches_nothing_and_is_judged() -> None:
    """The parameters are those of the table without the items that have one label; these are judged by them."""
    evidence, _ = oracles.crowd(np.random.default_rng(5), n_items=60, n_annotators=6, asked=0.35)
    annotations = evidence.annotations
    several = annotations.labels_per_item >= 2
    assert 5 < (annotations.labels_per_item == 1).sum() < 30
    method = DawidSkene(accuracy=0.75, least_labels=2, tolerance=1e-12)
    fitted = method.fit(evidence)
    taught = method.fit(Evidence(annotations.select(several[annotations.item])))
    np.testing.assert_allclose(fitted.annotators.confusion, taught.annotators.confusion, atol=1e-7)
    np.testing.assert_allclose(fitted.class_shares, taught.class_shares, atol=1e-7)
    np.testing.assert_allclose(fitted.probabilities, method.apply(taught, evidence).probabilities, atol=1e-6)
    assert fitted.fit.objective == pytest.approx(taught.fit.objective, abs=1e-6)


def test_no_method_talks_itself_into_one_class_with_one_label_an_item() -> None:
    """Plain Dawid-Skene did: on the first label of each rte item it was hardly better than a coin."""
    recorded = rte()
    annotations = recorded.annotations
    first = np.zeros(len(annotations), dtype=bool)
    first[annotations.item_start[:-1] + np.arange(annotations.n_items) % 10] = True
    evidence = Evidence(annotations.select(first))
    assert recorded.truth is not None
    votes, plain, default = (
        score.accuracy(method.fit(evidence).probabilities, recorded.truth)
        for method in (MajorityVote(), DawidSkene(), DefaultCombiner())
    )
    assert default >= votes - 0.005
    assert plain == votes
