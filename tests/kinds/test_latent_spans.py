"""Spans that annotators miss and invent: against plain products, nearby parameters, simulation, and crowds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Floats
from hitl.design_effect import DesignEffect
from hitl.kinds.latent_spans import STRENGTH, LatentSpans, learn_spans
from hitl.kinds.matching import Matched
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.kinds.spans import combine_spans
from hitl.models import VBIBCC, DefaultCombiner
from hitl.models.combiner import Combiner
from tests.kinds.span_crowds import CROWDS, SpanCrowd, found_spans


def matched(crowd: SpanCrowd, seed: int, known: int) -> tuple[Matched, Floats]:
    """Matched spans of a crowd, with known spans of the first texts, and the sizes of its texts."""
    labels, right = crowd.draw(seed)
    rows = [
        (number, start, end, labels.classes.index(kind))
        for number, name in enumerate(list(labels.items)[:known])
        for start, end, kind in sorted(right[str(name)])
    ]
    known_n = np.arange(len(labels.items)) < known
    labels = replace(labels, truth_s4=np.array(rows, np.int64).reshape(-1, 4), known_n=known_n)
    return labels.matched[0], np.bincount(labels.tokens.item_t, minlength=len(labels.items)).astype(float)


SMALL = SpanCrowd(annotators=5, answers=3, texts=40, missed=0.4, invented=0.5, kinds=2)


def joint(found: LatentSpans, given: Matched) -> Floats:
    """(C, 1 + H) rho_j times the probability of the votes on a cluster, vote by vote."""
    votes, p_cj = given.votes.annotations, np.tile(found.rate_j, (len(given), 1))
    for c, k, label in zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True):
        for j in range(p_cj.shape[1]):
            marks = found.marks_kj[k, j]
            if label == 0:
                p_cj[c, j] *= 1 - marks
            else:
                p_cj[c, j] *= marks * (found.label_khl[k, j - 1, label - 1] if j else found.invented_l[label - 1])
    assert given.votes.truth is not None
    known = given.votes.truth >= 0
    p_cj[known] *= np.eye(p_cj.shape[1])[given.votes.truth[known]]
    return p_cj


def seen_sizes(found: LatentSpans, given: Matched, size_n: Floats) -> Floats:
    """(1 + H,) sizes of the items, times the probability that a part in them has a mark."""
    unseen_nj = np.ones((len(size_n), len(found.rate_j)))
    for n, k in given.answers.answer_a2.tolist():
        unseen_nj[n] *= 1 - found.marks_kj[k]
    unseen_nj[given.answers.known_n, 1:] = 0
    sizes: Floats = size_n @ (1 - unseen_nj)
    return sizes


def log_posterior(
    found: LatentSpans, given: Matched, size_n: Floats, prior_kj: Floats, prior_khl: Floats, seen_h: Floats
) -> float:
    """Log density of the clusters as a Poisson process of parts with a mark, and of the parameters.

    `seen_h`: sizes in which the prior counts the shares of the classes.
    """
    log = np.log(joint(found, given).sum(axis=1)).sum() - float(seen_sizes(found, given, size_n) @ found.rate_j)
    log += STRENGTH * float((prior_kj * np.log(found.marks_kj) + (1 - prior_kj) * np.log(1 - found.marks_kj)).sum())
    log += STRENGTH * float((prior_khl * np.log(found.label_khl)).sum())
    share_h = found.rate_j[1:] * seen_h
    return log + float(np.log(share_h / share_h.sum()).sum() + np.log(found.invented_l).sum())


def priors(found: LatentSpans, given: Matched, size_n: Floats) -> tuple[Floats, Floats]:
    """(K, 1 + H) s_kj and (K, H, H) rows to which annotators are shrunk, by plain loops."""
    votes, q_cj, n_classes = given.votes.annotations, found.q_cj, found.label_khl.shape[1]
    (marked_kj, all_kj), count_khl = np.zeros((2, *found.marks_kj.shape)), np.zeros_like(found.label_khl)
    for c, k, label in zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True):
        all_kj[k] += q_cj[c]
        if label:
            marked_kj[k] += q_cj[c]
            count_khl[k, :, label - 1] += q_cj[c, 1:]
    for n in range(len(size_n)):
        own = given.answers.answer_a2[given.answers.answer_a2[:, 0] == n, 1]
        open_j = np.array([1, *n_classes * [not given.answers.known_n[n]]])
        all_kj[own] += open_j * found.rate_j * size_n[n] * np.prod(1 - found.marks_kj[own], axis=0)
    mean_j = (marked_kj.sum(axis=0) + 0.5) / (all_kj.sum(axis=0) + 1)
    mean = (marked_kj[:, 1:].sum() + 0.5) / (all_kj[:, 1:].sum() + 1)
    prior_kj = np.tile(mean_j, (len(all_kj), 1))
    for k, j in product(range(len(all_kj)), range(1, 1 + n_classes)):
        others = [other for other in range(1, 1 + n_classes) if other != j]
        seen = all_kj[k, others].sum() + STRENGTH
        own, usual = marked_kj[k, others].sum(), (all_kj[k] * mean_j)[others].sum()
        shares = mean_j[j], (own + STRENGTH * mean) / seen, (usual + STRENGTH * mean) / seen
        mean_odds, own_odds, usual_odds = (share / (1 - share) for share in shares)
        odds = mean_odds * own_odds / usual_odds
        prior_kj[k, j] = odds / (1 + odds)
    crowd_hl = count_khl.sum(axis=0) + np.eye(n_classes) + 1 / n_classes
    crowd_hl /= crowd_hl.sum(axis=1, keepdims=True)
    right_h = np.diag(crowd_hl)
    expected_k = [sum(float(row.sum()) * (1 - right_h[h]) for h, row in enumerate(count)) for count in count_khl]
    usual, prior_khl = STRENGTH * sum(expected_k) / count_khl.sum(), np.zeros_like(count_khl)
    for k, count in enumerate(count_khl):
        factor = (count.sum() - np.trace(count) + usual) / (expected_k[k] + usual)
        factor = min(factor, (1 - 1 / n_classes) / (1 - right_h.min()))
        for h in range(n_classes):
            prior_khl[k, h] = factor * crowd_hl[h]
            prior_khl[k, h, h] = 1 - factor * (1 - right_h[h])
    return prior_kj, prior_khl


def tilted(share: Floats, at: int, by: float) -> Floats:
    """Return shares of which one is larger, that sum to 1."""
    tilt = np.ones(share.shape[-1])
    tilt[at] = by
    found: Floats = share * tilt / (share * tilt).sum(axis=-1, keepdims=True)
    return found


@pytest.mark.parametrize(("seed", "known"), [(0, 0), (1, 0), (1, 15)])
def test_probabilities_are_plain_products_and_no_nearby_parameter_is_better(seed: int, known: int) -> None:
    given, size_n = matched(SMALL, seed, known)
    found = learn_spans(given, size_n, 1e-10, 20_000)
    p_cj = joint(found, given)
    np.testing.assert_allclose(found.q_cj, p_cj / p_cj.sum(axis=1, keepdims=True), atol=1e-6)
    means = *priors(found, given, size_n), seen_sizes(found, given, size_n)[1:]
    best = log_posterior(found, given, size_n, *means)
    for by in (0.99, 1.01):
        nearby = [replace(found, invented_l=tilted(found.invented_l, 0, by))]
        for j in range(3):
            nearby.append(replace(found, rate_j=found.rate_j * np.where(np.arange(3) == j, by, 1)))
            for k in range(5):
                marks_kj, label_khl = found.marks_kj.copy(), found.label_khl.copy()
                marks_kj[k, j] *= by
                label_khl[k, j % 2] = tilted(label_khl[k, j % 2], j % 2, by)
                nearby += [replace(found, marks_kj=marks_kj), replace(found, label_khl=label_khl)]
        assert max(log_posterior(one, given, size_n, *means) for one in nearby) < best


def test_misses_are_found_again_though_some_spans_are_marked_by_nobody() -> None:
    """Three of six annotators for each text. Inventions of two annotators are never at the same place."""
    rng, miss_k = np.random.default_rng(5), np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    invented_k = np.array([0.5, 1.0, 1.5, 0.5, 1.0, 1.5])
    answers, n_spans = [], 0
    for number in range(300):
        places = 10 * rng.permutation(100)
        spans, places = np.split(places, [rng.poisson(5)])
        n_spans += len(spans)
        for k in rng.permutation(6)[:3].tolist():
            own = spans[rng.random(len(spans)) >= miss_k[k]].tolist()
            invented, places = np.split(places, [rng.poisson(invented_k[k])])
            answers.append(Answer(f"t{number}", k, [(start, start + 1, "A") for start in (*own, *invented.tolist())]))
    texts = {f"t{number}": " ".join("w" * 500) for number in range(300)}
    labels = SpanLabels.from_texts(texts, answers)
    found = learn_spans(labels.matched[0], np.full(300, 500.0))
    who = np.argsort([int(str(k)) for k in labels.annotators])
    np.testing.assert_allclose(1 - found.marks_kj[who, 1], miss_k, atol=0.06)
    assert found.marks_kj[:, 0].max() < 0.1  # inventions follow a Poisson distribution
    assert found.rate_j[1] * 500 * 300 == pytest.approx(n_spans, rel=0.1)


def test_a_class_that_is_missed_more_often_is_not_taken_for_inventions() -> None:
    labels, spans_of = replace(CROWDS["one class hard to see"], texts=100).draw(0)
    right = {(name, *span) for name, own in spans_of.items() for span in own if span[2] == "kind-0"}
    found = {(one.item, *one.at("start", "end"), one.label) for one in found_spans(labels) if one.label == "kind-0"}
    assert len(right & found) > 0.8 * len(right)


def test_doubt_about_the_class_is_no_doubt_about_the_span() -> None:
    q_cj = np.array([[0.01, 0.5, 0.49], [0.3, 0.6, 0.1], [0.0, 1.0, 0.0]])
    found = LatentSpans(q_cj, *(np.zeros(0) for _ in range(4)))
    known = np.array([False, False, True])
    ours = found.tempered(DesignEffect(rho=0.5), np.array([3, 3, 3]), known)  # T = 2
    odds = np.sqrt(q_cj[:2, 0] / (1 - q_cj[:2, 0]))
    np.testing.assert_allclose(ours[:2, 0], odds / (1 + odds))
    np.testing.assert_allclose(ours[:2, 1] / ours[:2, 2], np.sqrt(q_cj[:2, 1] / q_cj[:2, 2]))
    np.testing.assert_allclose(ours.sum(axis=1), 1)
    np.testing.assert_array_equal(ours[2], q_cj[2])
    np.testing.assert_allclose(found.tempered(DesignEffect(), np.array([3, 3, 3]), known), q_cj, atol=1e-12)


# -- the consensus -----------------------------------------------------------------------------------------


def strict_f1(crowd: SpanCrowd, seed: int, method: Combiner | None = None) -> float:
    labels, right = crowd.draw(seed)
    found = {(span.item, *span.at("start", "end"), span.label) for span in found_spans(labels, method)}
    every = {(name, *span) for name, spans in right.items() for span in spans}
    return 2 * len(found & every) / (len(found) + len(every))


@pytest.mark.parametrize(
    ("crowd", "gain"),
    [
        (SpanCrowd(annotators=30, answers=3, missed=0.25, invented=0.25, shifted=0.2), 0.05),
        (SpanCrowd(invented=0.6, missed=0.3, answers=3, kinds=2), 0.05),
    ],
    ids=["three of thirty", "inventions"],
)
def test_the_default_finds_more_than_a_method_for_items(crowd: SpanCrowd, gain: float) -> None:
    assert strict_f1(crowd, 3) > strict_f1(crowd, 3, VBIBCC()) + gain


def answer(who: str, *spans: tuple[int, int]) -> Answer:
    return Answer("t", who, [(*span, "A") for span in spans])


def test_the_only_annotator_of_a_text_is_believed() -> None:
    labels = SpanLabels.from_texts({"t": "Ada met Bob"}, [answer("ann", (0, 3), (8, 11))])
    assert [span.at("start", "end") for span in found_spans(labels)] == [(0, 3), (8, 11)]


def test_known_spans_stay_certain_and_teach_who_invents() -> None:
    """Bob marks every last word, which is never a span where spans are known: his marks elsewhere are no spans."""
    texts = {f"t{n}": "Ada met Bob" for n in range(40)}
    marks: dict[str, Any] = {"ann": [(0, 3, "A")], "bob": [(8, 11, "A")], "cyd": [(0, 3, "A")]}
    answers = [Answer(name, who, spans) for name in texts for who, spans in marks.items()]
    known = {name: [(0, 3, "A")] for name in list(texts)[:20]}
    labels = SpanLabels.from_texts(texts, answers, known)
    assert [span.at("start", "end") for span in found_spans(labels)] == [(0, 3)] * 40
    (layer,) = combine_spans(labels).values()
    bobs = [part.probability for part in layer.parts if part.place["start"] == 8]
    assert bobs[:20] == [0.0] * 20
    assert max(bobs) < 0.1


def test_texts_without_a_mark_may_have_missed_spans() -> None:
    labels = SpanLabels.from_texts({"t": "Ada met Bob", "u": "so it goes"}, [Answer("u", "ann", [])], classes=("A",))
    (layer,) = combine_spans(labels, DefaultCombiner()).values()
    assert layer.parts == ()
    assert layer.probabilities.sum(axis=1) == pytest.approx([1, 1])


def test_known_spans_need_no_annotator() -> None:
    labels = SpanLabels.from_texts({"t": "Ada met Bob"}, [], {"t": [(0, 3, "A")]})
    assert [span.at("start", "end") for span in found_spans(labels)] == [(0, 3)]


def test_marks_that_are_all_known_to_be_wrong_say_nothing_about_classes() -> None:
    answers = [Answer("r", "ann", [(1, 9, "A")]), Answer("r", "bob", [(20, 30, "B")]), Answer("s", "ann", [])]
    labels = SpanLabels.from_recordings(["r", "s"], answers, {"r": []})
    with np.errstate(all="raise"):
        found = learn_spans(labels.matched[0], np.array([30.0, 30.0]))
    assert (found.label_khl > 0).all()
