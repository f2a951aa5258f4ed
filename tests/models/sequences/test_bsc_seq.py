"""Annotators who depend on their own last label, and steps that spans rule out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import digamma, logsumexp

from hitl import Annotations, Evidence
from hitl.annotations import Floats, Ints
from hitl.models import BSCSeq, SequentialIBCC
from hitl.models.numerics import kernels
from hitl.models.priors.markov_chain import NEVER, DirichletChain, Sequences
from hitl.models.sequences.chains import after_own_labels, merged, steps_of_spans
from tests.models.sequences.test_sequential import macro_f, simulated

BIO = ("O", "B-X", "I-X", "B-Y", "I-Y")


def test_each_annotator_is_one_after_each_of_their_labels() -> None:
    """Against a plain loop: sequences in any order, gaps, a pool of annotators without ids."""
    rng = np.random.default_rng(0)
    places = np.stack((rng.permutation(np.repeat(np.arange(6), 5)), np.zeros(30, int)), axis=1)
    for sequence in range(6):
        here = np.flatnonzero(places[:, 0] == sequence)
        places[here, 1] = 3 * rng.permutation(len(here))
    said = rng.integers(-1, 3, size=(30, 4))
    annotations = replace(Annotations.from_matrix(said, classes=["a", "b", "c"]), anonymous=3)
    found = after_own_labels(annotations, Sequences(places))
    for item, annotator, label, split in zip(
        annotations.item, annotations.annotator, annotations.label, found.annotator, strict=True
    ):
        sequence, position = places[item]
        earlier = [n for n in range(30) if places[n, 0] == sequence and places[n, 1] < position]
        last = max(earlier, key=lambda n: places[n, 1], default=None)
        before = -1 if last is None or annotator == 3 else said[last, annotator]
        assert split == annotator * 4 + (before if before >= 0 else 3)
        assert said[item, annotator] == label
    q_nj = rng.dirichlet(np.ones(3), size=30)
    counts_klj = merged(kernels.counts(found, q_nj), 3)
    np.testing.assert_allclose(counts_klj, kernels.counts(annotations, q_nj), atol=1e-12)


def test_what_may_follow_what() -> None:
    allowed = steps_of_spans(BIO)
    assert allowed is not None
    assert allowed[0].tolist() == [True, True, False, True, False]
    assert allowed[1 + BIO.index("O")].tolist() == [True, True, False, True, False]
    assert allowed[1 + BIO.index("B-X")].tolist() == [True, True, True, True, False]
    assert allowed[1 + BIO.index("I-Y")].tolist() == [True, True, False, True, True]
    assert steps_of_spans(("O", "X")) is None
    assert steps_of_spans(("O", "B-")) is None


def test_spans_of_a_type_without_a_name_follow_each_other_as_others_do() -> None:
    """B and I are the only type, or one of several. I begins a span where no class is B of its type."""
    found = steps_of_spans(("O", "B", "I"))
    assert found is not None
    assert found.tolist() == [[True, True, False], [True, True, False], [True, True, True], [True, True, True]]
    mixed = steps_of_spans(("O", "B", "I", "B-X", "I-X"))
    assert mixed is not None
    assert mixed[1:, 2].tolist() == [False, True, True, False, False]
    alone = steps_of_spans(("O", "I", "I-X"))
    assert alone is not None
    assert alone.all()


@pytest.mark.parametrize("suffix", ["", "-X"])
def test_no_consensus_goes_on_with_a_span_that_has_not_begun(suffix: str) -> None:
    """Most annotators began the name late: what they say there is I after O, which no span is."""
    classes = ["O", f"B{suffix}", f"I{suffix}"]
    said_kn = [["OBI".index(mark) for mark in answer] for answer in ("OIIO", "OIIO", "OBIO", "OIIO")]
    annotations = Annotations.from_matrix(np.transpose(said_kn), classes=classes)
    known = Evidence(annotations, sequence=np.array([(0, place) for place in range(4)]))
    consensus = BSCSeq().fit(known)
    steps = np.column_stack((consensus.labels[:-1], consensus.labels[1:])).tolist()
    assert ["O", f"I{suffix}"] not in steps


def test_steps_that_are_not_allowed_have_no_part_whatever_annotators_say() -> None:
    """Beliefs and evidence against enumeration over four items."""
    rng = np.random.default_rng(1)
    allowed = steps_of_spans(BIO)
    assert allowed is not None
    places = np.stack((np.zeros(4, int), np.arange(4)), axis=1)
    chain = DirichletChain.even(Sequences(places), 5, 1.0, allowed)
    chain = replace(chain, nu_rj=np.where(allowed, rng.uniform(1, 5, size=(6, 5)), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rj = np.where(allowed, digamma(chain.nu_rj) - digamma(chain.nu_rj.sum(axis=1))[:, None], NEVER)
    message_nj = 2 * rng.normal(size=(4, 5))
    truths = list(product(range(5), repeat=4))
    weight = np.array([log_rj[0, z[0]] + sum(log_rj[1 + a, b] for a, b in pairwise(z)) for z in truths]) + np.array(
        [message_nj[np.arange(4), z].sum() for z in truths]
    )
    found = chain.posterior(message_nj.copy(), np.ones(4, bool))
    one_hot = np.eye(5)[np.array(truths)]
    np.testing.assert_allclose(
        found.q_nj, np.einsum("t,tnj->nj", np.exp(weight - logsumexp(weight)), one_hot), atol=1e-9
    )
    np.testing.assert_allclose(found.log_evidence, logsumexp(weight), rtol=1e-10)
    assert (found.statistics.pairs_ij[~allowed[1:]] < 1e-12).all()
    again = chain.learn(found.statistics)
    assert (again.nu_rj[~allowed] == 0).all()
    assert np.isfinite(again.log_density())


def habitual(seed: int, repeats: float) -> tuple[Evidence, Ints]:
    """Annotators who say again what they said last in a share of the cases."""
    evidence, truth, chain, _ = simulated(3000, seed, right=(0.1, 0.5))
    rng, rows = np.random.default_rng(seed), chain.sequences.rows
    said = np.full((3000, 10), -1)
    said[evidence.annotations.item, evidence.annotations.annotator] = evidence.annotations.label
    for place, row in enumerate(rows[1:], start=1):
        if chain.sequences.follows[place - 1]:
            again = rng.random(10) < repeats
            said[row, again] = said[rows[place - 1], again]
    return replace(evidence, annotations=Annotations.from_matrix(said, classes=list(range(4)))), truth


def gain(repeats: float) -> Floats:
    """What BSC-seq gains in macro F over annotators who forget, for three seeds."""
    gains = []
    for seed in range(3):
        evidence, truth = habitual(seed, repeats)
        scores = [macro_f(truth, one.fit(evidence).probabilities) for one in (BSCSeq(), SequentialIBCC())]
        gains.append(scores[0] - scores[1])
    return np.array(gains)


def test_it_sees_through_annotators_who_repeat_themselves_and_loses_little_where_they_do_not() -> None:
    assert gain(0.6).min() > 0.02
    assert gain(0.0).min() > -0.01


def test_known_truth_that_breaks_the_rule_is_kept() -> None:
    said = Annotations.from_matrix([[0, 0], [2, 2], [0, 0], [1, 1]], classes=list(BIO))
    places = np.stack((np.zeros(4, int), np.arange(4)), axis=1)
    found = BSCSeq().fit(Evidence(said, sequence=places, truth=np.array([0, 2, 0, -1], np.int32)))
    assert found.codes[:3].tolist() == [0, 2, 0]
    assert np.isfinite(found.probabilities).all()
