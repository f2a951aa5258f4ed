"""Confusion matrices judged by everybody else: by Bayes' rule label by label, and no flattery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import xlogy

from hitl.active.acquisition.value_of_information import average_confusion, crew_confusion
from hitl.active.by_others import LABELS, confusion_by_others
from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import Crew
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.models.annotators.leave_one_out import FLOOR
from hitl.models.dawid_skene import DawidSkene
from tests.oracles import crowd


def prior_of(consensus: Consensus) -> Floats:
    """(J, L) labels that the average is worth."""
    learned = consensus.annotators
    return LABELS * average_confusion(consensus) if learned.prior is None else learned.prior


@given(st.integers(0, 10_000))
def test_labels_count_by_the_beliefs_of_all_others(seed: int) -> None:
    """Plainly: for each label the posterior without it, by Bayes' rule, weighted by how far it is from not knowing."""
    rng = np.random.default_rng(seed)
    evidence, _ = crowd(rng, 25, 4, 3, asked=0.5, known=0.2)
    consensus = DawidSkene().fit(evidence)
    said = list(evidence.annotations.table().to_pylist())
    learned = consensus.annotators
    place = {name: k for k, name in enumerate(learned.names)}
    code = {name: option for option, name in enumerate(learned.options)}
    row = {name: n for n, name in enumerate(evidence.annotations.items)}
    counts = np.zeros_like(learned.confusion) + prior_of(consensus)
    for own in said:
        q = consensus.class_shares.copy()
        for other in said:
            if other["item"] == own["item"] and other is not own:
                q *= np.maximum(learned.confusion[place[other["annotator"]], :, code[other["label"]]], FLOOR)
        truth = evidence.truth[row[own["item"]]]  # type: ignore[index]
        q = np.eye(3)[truth] if truth >= 0 else q / q.sum()
        knows = 1 + xlogy(q, q).sum() / np.log(3)
        counts[place[own["annotator"]], :, code[own["label"]]] += knows * q
    found = confusion_by_others(evidence, consensus, Crew(learned.names))
    assert np.allclose(found, counts / counts.sum(axis=2, keepdims=True), atol=1e-5)


def test_where_the_truth_is_known_answers_are_counted() -> None:
    evidence, truth = crowd(np.random.default_rng(1), 60, 4, 3, asked=0.6)
    evidence = Evidence(evidence.annotations, truth=truth.astype(np.int32))
    consensus = DawidSkene().fit(evidence)
    found = confusion_by_others(evidence, consensus, Crew(consensus.annotators.names))
    counts = np.zeros((4, 3, evidence.annotations.n_options)) + prior_of(consensus)
    np.add.at(counts, (evidence.annotations.annotator, truth[evidence.annotations.item], evidence.annotations.label), 1)
    assert np.allclose(found, counts / counts.sum(axis=2, keepdims=True), atol=1e-6)


def test_nobody_is_flattered_by_their_own_labels() -> None:
    """Somebody who guesses gave half of all labels, first: by all they look able, by the others they do not."""
    rng = np.random.default_rng(2)
    truth = rng.integers(2, size=300)
    matrix = np.full((300, 5), -1)
    matrix[:, 0] = rng.integers(2, size=300)
    who = rng.integers(1, 5, size=300)
    matrix[np.arange(300), who] = np.where(rng.random(300) < 0.8, truth, 1 - truth)
    evidence = Evidence(Annotations.from_matrix(matrix, classes=(0, 1)))
    consensus = DawidSkene().fit(evidence)
    crew = Crew(consensus.annotators.names)
    j = np.arange(2)
    by_all = crew_confusion(consensus, crew)[0, j, j].mean()
    by_others = confusion_by_others(evidence, consensus, crew)[0, j, j].mean()
    assert by_all > 0.62
    assert by_others < 0.56


def test_labels_that_nobody_else_speaks_to_say_nothing() -> None:
    """One label an item, even shares: the matrices stay the average, for the expert and for the spammer."""
    matrix = np.full((40, 2), -1)
    matrix[:20, 0], matrix[20:, 1] = np.arange(20) % 2, np.arange(20) % 2
    evidence = Evidence(Annotations.from_matrix(matrix, classes=(0, 1)))
    consensus = DawidSkene().fit(evidence)
    consensus = replace(consensus, class_shares=np.array([0.5, 0.5]))
    found = confusion_by_others(evidence, consensus, Crew((0, 1)))
    prior = prior_of(consensus)
    assert np.allclose(found, prior / prior.sum(axis=1, keepdims=True), atol=0.02)


def test_newcomers_and_whoever_comes_are_like_the_average() -> None:
    evidence, _ = crowd(np.random.default_rng(3), 40, 4, 3, asked=0.5)
    consensus = DawidSkene().fit(evidence)
    names = consensus.annotators.names
    found = confusion_by_others(evidence, consensus, Crew((names[2], "new", names[0])))
    everybody = confusion_by_others(evidence, consensus, Crew(names))
    assert np.allclose(found[[0, 2]], everybody[[2, 0]])
    known = Evidence(evidence.annotations, truth=consensus.labels)
    one = confusion_by_others(known, consensus, Crew())[0]
    counts = np.zeros(one.shape) + prior_of(consensus)
    np.add.at(counts, (consensus.labels[evidence.annotations.item], evidence.annotations.label), 1)
    assert np.allclose(one, counts / counts.sum(axis=1, keepdims=True))
    assert np.allclose(confusion_by_others(evidence, consensus, Crew())[0], found[1])
    assert np.allclose(found.sum(axis=2), 1)


def test_before_any_label_everybody_is_like_the_average() -> None:
    annotations = Annotations.from_matrix(np.full((3, 0), -1), classes=(0, 1))
    consensus = DawidSkene().fit(Evidence(annotations))
    found = confusion_by_others(Evidence(annotations), consensus, Crew(("ann",)))
    assert np.allclose(found[0], average_confusion(consensus))


def test_a_consensus_about_other_people_is_refused() -> None:
    evidence, _ = crowd(np.random.default_rng(4), 20, 3, 2)
    other, _ = crowd(np.random.default_rng(4), 20, 4, 2)
    with pytest.raises(BadInput, match="other annotators"):
        confusion_by_others(evidence, DawidSkene().fit(other), Crew())
