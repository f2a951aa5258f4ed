"""Chains of true classes: against plain loops, Dawid-Skene, and the truth that made the labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads
from sklearn.metrics import f1_score

from hitl import Annotations, Evidence
from hitl.annotations import Floats, Ints
from hitl.errors import BadEvidence
from hitl.models import BSCSeq, DawidSkene, SequentialDawidSkene, SequentialIBCC
from hitl.models.annotators.confusion import Confusion
from hitl.models.inference import em, working_set
from hitl.models.numerics.forward_backward import forward_backward
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from tests.models.priors.chains import ToyChain

METHODS = (SequentialDawidSkene(), SequentialIBCC())
J = 4


def simulated(
    n_items: int, seed: int, *, sticky: float = 0.0, right: tuple[float, float] = (0.3, 0.8)
) -> tuple[Evidence, Ints, MarkovChain, Floats]:
    """Evidence of ten annotators on sequences of 5 to 60 items; its truth, chain and log confusion (K, L, J)."""
    rng = np.random.default_rng(seed)
    step_ij = (1 - sticky) * rng.dirichlet(np.full(J, 0.7), size=J) + sticky * np.eye(J)
    first_j = np.full(J, 1 / J)
    length, place, truth = 0, [], []
    while len(truth) < n_items:
        length = min(int(rng.integers(5, 61)), n_items - len(truth))
        for position in range(length):
            p_j = step_ij[truth[-1]] if position else first_j
            truth.append(int(rng.choice(J, p=p_j)))
            place.append((len(place) - position, position))
    truth_n = np.array(truth, np.int32)
    accuracy = rng.uniform(*right, size=(10, J))
    pi_kjl = rng.dirichlet(np.ones(J), size=(10, J)) * (1 - accuracy)[..., None]
    pi_kjl[:, np.arange(J), np.arange(J)] += accuracy
    said = np.stack([[rng.choice(J, p=pi_kjl[k, z]) for k in range(10)] for z in truth])
    sequences = np.array(place)
    annotations = Annotations.from_matrix(said, classes=list(range(J)))
    chain = MarkovChain(Sequences(sequences), first_j, step_ij)
    return Evidence(annotations, sequence=sequences), truth_n, chain, np.log(pi_kjl.transpose(0, 2, 1))


def macro_f(truth: Ints, q_nj: Floats) -> float:
    return float(f1_score(truth, q_nj.argmax(axis=1), average="macro"))


def test_the_passes_are_those_of_plain_loops_however_long_the_chain() -> None:
    rng = np.random.default_rng(0)
    first_j, *steps = rng.dirichlet(np.ones(J), size=1 + J)
    message_nj, everything = 5 * rng.normal(size=(3000, J)), np.ones(3000, bool)
    expected = ToyChain(first_j, np.array(steps)).posterior(message_nj, everything)
    found = forward_backward(message_nj, np.arange(3000), np.array([0, 3000]), first_j, np.array(steps))
    np.testing.assert_allclose(found.q_nj, expected.q_nj, atol=1e-9)
    np.testing.assert_allclose(found.log_z_s.sum(), expected.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(found.pairs_ij, expected.statistics, rtol=1e-9)
    assert found.pairs_ij.sum() == pytest.approx(2999)
    assert found.first_j.sum() == pytest.approx(1)


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(1)
    first_j, *steps = rng.dirichlet(np.ones(J), size=1 + J)
    message_nj, rows = 3 * rng.normal(size=(30_000, J)), rng.permutation(30_000)
    start = np.unique(np.concatenate(([0, 30_000], rng.integers(30_000, size=500))))
    before, found = get_num_threads(), []
    try:
        for threads in (1, 2):
            set_num_threads(min(threads, before))
            found.append(forward_backward(message_nj, rows, start, first_j, np.array(steps)))
    finally:
        set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_steps_that_do_not_depend_on_the_class_before_are_dawid_skene() -> None:
    evidence, _, chain, log_pi_klj = simulated(300, 2)
    share_j = np.array([0.1, 0.2, 0.3, 0.4])
    even = replace(chain, first_j=share_j, step_ij=np.tile(share_j, (J, 1)))
    found = em.expectation(evidence, even, log_pi_klj)
    bare = Evidence(evidence.annotations)
    start = DawidSkene().fit(bare)
    confusion_kjl = np.exp(log_pi_klj).transpose(0, 2, 1)
    same = replace(start, annotators=replace(start.annotators, confusion=confusion_kjl), class_shares=share_j)
    np.testing.assert_allclose(found.q_nj, DawidSkene().apply(same, bare).probabilities, atol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", [{}, {"sticky": 0.8, "right": (0.05, 0.45)}], ids=["any", "sticky and weak"])
def test_it_comes_near_the_oracle_that_knows_chain_and_annotators(method: SequentialDawidSkene, kind: dict) -> None:  # type: ignore[type-arg]
    """Notes to the paper: within .002 with 10,000 items, within .03 with 1,000; better than Dawid-Skene."""
    for n_items, near in ((10_000, 0.002), (1000, 0.03)):
        evidence, truth, chain, log_pi_klj = simulated(n_items, 3, **kind)
        oracle = macro_f(truth, em.expectation(evidence, chain, log_pi_klj).q_nj)
        found = method.fit(evidence)
        alone = DawidSkene().fit(Evidence(evidence.annotations))
        assert macro_f(truth, found.probabilities) > oracle - near
        assert macro_f(truth, found.probabilities) > macro_f(truth, alone.probabilities)
        assert np.abs(found.parameters["steps"] - chain.step_ij).max() < 6 / np.sqrt(n_items / J)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_known_truth_reaches_the_neighbours(method: SequentialDawidSkene) -> None:
    evidence, truth, _, _ = simulated(2000, 4, sticky=0.8, right=(0.0, 0.2))
    learned = method.fit(evidence)
    known = np.arange(2000) % 3 == 0
    knowing = method.apply(learned, replace(evidence, truth=np.where(known, truth, -1).astype(np.int32)))
    before, after = (macro_f(truth[~known], found.probabilities[~known]) for found in (learned, knowing))
    assert after > before + 0.01
    np.testing.assert_array_equal(knowing.codes[known], truth[known])


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_what_was_learned_judges_as_the_fit_did_and_is_a_start(method: SequentialDawidSkene) -> None:
    evidence, _, _, _ = simulated(1000, 5)
    learned = method.fit(evidence)
    np.testing.assert_allclose(method.apply(learned, evidence).probabilities, learned.probabilities, atol=0.02)
    again = method.fit(evidence, start=learned)
    assert again.fit.iterations < learned.fit.iterations / 2
    np.testing.assert_allclose(again.probabilities, learned.probabilities, atol=1e-2)


@pytest.mark.parametrize("method", [*METHODS, BSCSeq()], ids=lambda one: type(one).__name__)
def test_what_it_cannot_use_is_refused(method: SequentialDawidSkene) -> None:
    evidence, _, _, _ = simulated(40, 5)
    with pytest.raises(BadEvidence, match="learned by dawid-skene, and not by this method"):
        method.apply(DawidSkene().fit(Evidence(evidence.annotations)), evidence)
    if isinstance(method, BSCSeq):
        with pytest.raises(BadEvidence, match="learned by sequential-dawid-skene"):
            method.apply(SequentialDawidSkene().fit(evidence), evidence)
    places = np.array(evidence.sequence)
    places[7] = places[3]
    with pytest.raises(BadEvidence, match="items 3 and 7 have the same position in a sequence"):
        method.fit(replace(evidence, sequence=places))


def test_an_estimate_climbs_and_no_nearby_chain_is_better() -> None:
    evidence, _, chain, _ = simulated(400, 6)
    people = Confusion.unlearned(np.full((J, J), 0.01), 10)
    begun = np.full((400, J), 1 / J) + 0.1 * np.random.default_rng(0).random((400, J))
    found = em.run_em(
        evidence,
        MarkovChain.even(chain.sequences, J),
        people,
        begun / begun.sum(axis=1, keepdims=True),
        tolerance=1e-10,
        max_iterations=2000,
    )
    assert np.diff(found.objective).min() > -1e-7
    log_pi_klj, everything = found.annotators.log_pi_klj, np.ones(400, bool)

    def objective(prior: MarkovChain) -> float:
        return em.expectation(evidence, prior, log_pi_klj, everything).log_evidence + prior.log_density()

    top = objective(found.prior)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        step_ij = found.prior.step_ij * np.exp(0.05 * rng.normal(size=(J, J)))
        assert objective(replace(found.prior, step_ij=step_ij / step_ij.sum(axis=1, keepdims=True))) < top


@pytest.mark.parametrize("method", [SequentialIBCC(), BSCSeq()])
def test_large_tables_end_at_the_same_top_in_fewer_iterations(
    method: SequentialIBCC | BSCSeq, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, _, _, _ = simulated(2_000, 0)
    exact = replace(method, tolerance=1e-10, max_iterations=2_000)
    creeping = exact.fit(evidence)
    monkeypatch.setattr(working_set, "LEAST_LABELS", 0)  # as if it were large
    found = exact.fit(evidence)
    assert found.fit.iterations < creeping.fit.iterations
    assert found.fit.objective[-1] >= creeping.fit.objective[-1] - 1e-3
    assert np.abs(found.probabilities - creeping.probabilities).max() < 1e-3
