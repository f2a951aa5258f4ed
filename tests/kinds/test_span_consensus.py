"""Spans of a consensus: paths and probabilities against enumeration and another library, and what crowds make of it."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Floats
from hitl.kinds.span_labels import SpanLabels
from hitl.kinds.span_tables import read_labels
from hitl.kinds.spans import combine_spans, span_table
from hitl.models import VBIBCC, BSCSeq, MajorityVote, SequentialDawidSkene, SequentialIBCC
from hitl.models.combiner import Combiner
from hitl.models.numerics.forward_backward import most_probable
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from hitl.models.sequences.learned_chain import ChainPosterior
from hitl.parts import Part
from tests.kinds.span_crowds import found_spans

J = 3


def posterior(seed: int, lengths: tuple[int, ...] = (4, 1, 5)) -> ChainPosterior:
    """A posterior of a few short sequences, whose items are in no order."""
    rng = np.random.default_rng(seed)
    places = [(number, position) for number, length in enumerate(lengths) for position in range(length)]
    place_n2 = rng.permutation(np.array(places))
    chain = MarkovChain(Sequences(place_n2), rng.dirichlet(np.ones(J)), rng.dirichlet(np.ones(J), size=J))
    return ChainPosterior(2 * rng.normal(size=(len(place_n2), J)), chain)


def paths(found: ChainPosterior, number: int) -> tuple[Floats, Floats]:
    """All paths (P, T) of a sequence, and their probabilities (P,), by plain products."""
    order, chain = found.chain.sequences, found.chain
    message_tj = found.message_nj[order.rows[order.start[number] : order.start[number + 1]]]
    every = np.array(list(product(range(J), repeat=len(message_tj))))
    weight = [
        chain.first_j[path[0]]
        * np.prod([chain.step_ij[i, j] for i, j in pairwise(path)])
        * np.exp(message_tj[np.arange(len(path)), path].sum())
        for path in every
    ]
    return every, np.array(weight) / np.sum(weight)


@pytest.mark.parametrize("seed", range(5))
def test_the_path_is_the_most_probable_of_all(seed: int) -> None:
    found = posterior(seed)
    order = found.chain.sequences
    for number in range(3):
        every, p = paths(found, number)
        rows = order.rows[order.start[number] : order.start[number + 1]]
        np.testing.assert_array_equal(found.path[rows], every[p.argmax()])


@pytest.mark.parametrize("seed", range(5))
def test_events_have_the_probability_of_their_paths(seed: int) -> None:
    """That two neighbours are of class 1 and the one after them is not, as a span is; one that cannot be is at 0."""
    found = posterior(seed)

    def where(event: int, message_tj: Floats) -> None:
        message_tj[1:3, [0, 2]] = -np.inf
        message_tj[3, 1] = -np.inf
        if event == 2:
            message_tj[0] = -np.inf

    probability = found.probabilities(np.array([0, 2, 0]), where)
    for event, number in enumerate((0, 2)):
        every, p = paths(found, number)
        right = (every[:, 1:3] == 1).all(axis=1) & (every[:, 3] != 1)
        assert probability[event] == pytest.approx(p[right].sum(), rel=1e-9)
    assert probability[2] == 0


def test_few_events_at_a_time_are_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    found = posterior(7)

    def where(event: int, message_tj: Floats) -> None:
        message_tj[0, event % J] = -np.inf

    sequence_e = np.arange(30) % 3
    whole = found.probabilities(sequence_e, where)
    monkeypatch.setattr("hitl.models.sequences.learned_chain.AT_ONCE", 7)
    np.testing.assert_allclose(found.probabilities(sequence_e, where), whole, rtol=1e-12)
    assert found.probabilities(sequence_e[:0], where).shape == (0,)


def test_beliefs_and_paths_are_those_of_hmmlearn() -> None:
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an oracle of the test extra")
    rng = np.random.default_rng(11)
    first_j, emitted = rng.dirichlet(np.ones(J)), rng.dirichlet(np.ones(6), size=J)
    step_ij = rng.dirichlet(np.ones(J), size=J)
    model = hmm.CategoricalHMM(J, implementation="scaling")
    model.startprob_, model.transmat_, model.emissionprob_ = first_j, step_ij, emitted
    lengths = [40, 1, 300, 7]
    seen = rng.integers(6, size=sum(lengths))
    places = np.array([(number, t) for number, length in enumerate(lengths) for t in range(length)])
    found = ChainPosterior(np.log(emitted[:, seen].T), MarkovChain(Sequences(places), first_j, step_ij))
    log_evidence, _ = model.score_samples(seen[:, None], lengths)
    np.testing.assert_allclose(found.passed.q_nj, model.predict_proba(seen[:, None], lengths), atol=1e-9)
    assert found.passed.log_z_s.sum() == pytest.approx(log_evidence, rel=1e-10)
    np.testing.assert_array_equal(found.path, model.predict(seen[:, None], lengths))


def test_of_equal_paths_the_first_is_taken() -> None:
    even = np.full((J, J), 1 / J)
    assert most_probable(np.zeros((3, J)), np.arange(3), np.array([0, 3]), even[0], even).tolist() == [0, 0, 0]


# -- crowds ------------------------------------------------------------------------------------------------

KINDS = ("LOC", "PER")


def crowd(seed: int, texts: int = 150) -> tuple[SpanLabels, set[tuple[Any, ...]]]:
    """Texts of 12 words with names of one to three words; five annotators miss names, shift ends and mix up kinds."""
    rng = np.random.default_rng(seed)
    table: dict[str, list[Any]] = {name: [] for name in ("document", "annotator", "start", "end", "label")}
    right = set()
    for number in range(texts):
        place, spans = 0, []
        while place < 11:
            if rng.random() < 0.25:
                length = int(rng.integers(1, 4))
                spans.append((place, min(place + length, 12), str(rng.choice(KINDS))))
                place += length
            place += 1
        right |= {(f"t{number}", 2 * first, 2 * last - 1, kind) for first, last, kind in spans}
        for k in range(5):
            marked = []
            for first, last, kind in spans:
                if rng.random() < 0.1 + 0.08 * k:
                    continue
                last += int(last - first > 1 and rng.random() < 0.15) * -1
                marked.append((first, last, kind if rng.random() < 0.9 else str(rng.choice(KINDS))))
            for first, last, kind in marked or [(None, None, None)]:
                offsets = (None, None) if first is None else (2 * first, 2 * last - 1)
                for name, value in zip(table, (f"t{number}", f"ann-{k}", *offsets, kind), strict=True):
                    table[name].append(value)
    names = [f"t{number}" for number in range(texts)]
    words = " ".join("abcdefghijkl")
    return read_labels(table, {"document": names, "text": [words] * texts}), right


def strict_f1(found: list[Part], right: set[tuple[Any, ...]]) -> float:
    ours = {(span.item, *span.at("start", "end"), span.label) for span in found}
    return 2 * len(ours & right) / (len(ours) + len(right))


METHODS = [VBIBCC(), BSCSeq(), SequentialIBCC(), SequentialDawidSkene()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_spans_are_as_probable_as_they_are_often_right(method: Combiner) -> None:
    labels, right = crowd(1)
    assert strict_f1(found_spans(labels, method), right) > strict_f1(found_spans(labels, MajorityVote()), right) + 0.02
    candidates = [span for result in combine_spans(labels, method).values() for span in result.parts]
    p = np.array([span.probability for span in candidates])
    hits = np.array([(span.item, *span.at("start", "end"), span.label) in right for span in candidates])
    assert p[hits].mean() > p[~hits].mean() + 0.5
    assert abs(p.mean() - hits.mean()) < 0.06


def test_layers_come_together_and_nobody_asked_is_nothing_found() -> None:
    rows = {
        "document": ["a"] * 4,
        "annotator": ["ann", "ann", "bob", "bob"],
        "start": [0, 5, 0, 5],
        "end": [10, 10, 10, 10],
        "label": ["ORG", "LOC", "ORG", "LOC"],
    }
    labels = read_labels(rows, {"document": ["a", "b"], "text": ["Acme Paris is", "Acme Paris is"]})
    layers = combine_spans(labels)
    assert [(span.item, *span.at("start", "end"), span.label, span.marked) for span in found_spans(labels)] == [
        ("a", 0, 10, "ORG", 2),
        ("a", 5, 10, "LOC", 2),
    ]
    assert len(layers) == 2
    table = span_table(labels, layers.values()).to_pydict()
    assert table["text"] == ["Acme Paris", "Paris"]


def test_known_spans_are_found_as_they_are() -> None:
    labels, right = crowd(3, texts=30)
    rows = [span for span in right if span[0] in ("t0", "t1")]
    truth = {name: [row[place] for row in rows] for place, name in enumerate(("document", "start", "end", "label"))}
    answers = [(labels.items[d], labels.annotators[k]) for d, k in labels.answer_a2.tolist()]
    table = {
        "document": [answers[a][0] for a in labels.span_s4[:, 0]],
        "annotator": [answers[a][1] for a in labels.span_s4[:, 0]],
        "start": labels.span_s4[:, 1].tolist(),
        "end": labels.span_s4[:, 2].tolist(),
        "label": [labels.classes[kind] for kind in labels.span_s4[:, 3]],
    }
    texts = {"document": list(labels.items), "text": list(labels.texts)}
    found = found_spans(read_labels(table, texts, truth))
    sure = {(s.item, *s.at("start", "end"), s.label): s.probability for s in found if s.item in ("t0", "t1")}
    assert sure.keys() == set(rows)
    assert min(sure.values(), default=1.0) > 1 - 1e-9
