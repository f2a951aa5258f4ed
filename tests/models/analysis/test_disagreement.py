"""Soft labels: the mixture against enumeration, crowds that differ and crowds that err, and answers left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import DawidSkene, DefaultCombiner
from hitl.models.analysis import disagreement as module
from hitl.models.analysis.disagreement import PLAIN, PROPORTIONS, disagreement
from tests.bench.honesty.soft_labels import LEAST, left_out, losses, predictions, simulated
from tests.reference_data import crowd

SMALL = [["a", "a", "b"], ["b", "b", "b"], ["c", "a", "?"], ["a", "c", "c"], ["b", "?", "c"], ["c", "c", "a"]]

MODEL = np.random.default_rng(0).dirichlet(np.ones(3), len(SMALL))


@pytest.fixture
def small() -> tuple[Evidence, Consensus]:
    rows = [(n, k, label) for n, row in enumerate(SMALL) for k, label in enumerate(row)]
    items, people, labels = zip(*rows, strict=True)
    options = ("a", "b", "c", "?")
    codes = [options.index(label) for label in labels]
    annotations = Annotations(np.array(items), np.array(people), np.array(codes), range(7), range(3), "abc", options)  # type: ignore[arg-type]
    evidence = Evidence(annotations, probabilities={"net": np.vstack([MODEL, [[np.nan] * 3]])})
    consensus = DawidSkene().fit(Evidence(annotations))
    return evidence, replace(consensus, class_shares=np.array([0.5, 0.3, 0.2]))


def enumerated(evidence: Evidence, consensus: Consensus) -> tuple[Floats, Floats]:
    """Shares and probability of differing, in plain loops, with the weights at which EM stands still."""
    people, q_nj = consensus.annotators, consensus.probabilities
    one = np.eye(3)
    seen = [*one, *(part * one[i] + (1 - part) * one[j] for i, j in ((0, 1), (0, 2), (1, 2)) for part in PROPORTIONS)]
    kinds = [(t, e) for e in PLAIN for t in [*seen, np.full(3, 1 / 3)]]
    likelihood = np.ones((6, len(kinds)))
    for n in range(6):
        for c, (t, e) in enumerate(kinds):
            for k in range(3):
                label = "abc?".index(SMALL[n][k])
                counts = people.concentration[k].copy()
                counts[:, label] -= q_nj[n]
                pi_jl = counts / counts.sum(axis=1, keepdims=True)
                likelihood[n, c] *= (1 - e) * t @ pi_jl[:, label] + e * (t[label] if label < 3 else 0)
            likelihood[n, c] *= t @ (MODEL[n] / consensus.class_shares)
    weight = np.full(len(kinds), 1 / len(kinds))
    for _ in range(3000):
        z_nc = weight * likelihood / (likelihood @ weight)[:, None]
        weight = (z_nc.sum(axis=0) + 1 / len(kinds)) / 7
    z_nc = weight * likelihood / (likelihood @ weight)[:, None]
    mean_jl = np.average(people.confusion, axis=0, weights=people.labels)
    answers = np.array([(1 - e) * t @ mean_jl + e * np.append(t, 0) for t, e in kinds])
    return z_nc @ answers, z_nc[:, [t.max() < 1 for t, _ in kinds]].sum(axis=1)


def test_shares_and_differing_are_those_of_enumeration(
    small: tuple[Evidence, Consensus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ITERATIONS", 3000)
    monkeypatch.setattr(module, "CELLS", 2 * 3 * 39)  # two items at a time
    evidence, consensus = small
    found = disagreement(evidence, consensus)
    shares, differ = enumerated(evidence, consensus)
    assert found.shares[:6] == pytest.approx(shares, abs=1e-4)
    assert found.differ[:6] == pytest.approx(differ, abs=1e-3)
    assert found.disputed.tolist() == [True, False, True, True, True, True, False]
    people = consensus.annotators
    mean_jl = np.average(people.confusion, axis=0, weights=people.labels)
    assert found.shares[6] == pytest.approx(consensus.probabilities[6] @ mean_jl)  # nobody has answered it
    assert np.isnan(found.differ[6])
    assert found.shares.sum(axis=1) == pytest.approx(1)


def test_the_table_has_the_best_label_beside_the_shares(small: tuple[Evidence, Consensus]) -> None:
    found = disagreement(*small)
    table = found.table()
    assert table.column_names == ["item", "label", "confidence", "differ", *(f"share_{name}" for name in "abc?")]
    assert table.column("differ").null_count == 1
    assert table.column("share_?").to_numpy() == pytest.approx(found.shares[:, 3])
    assert "tell little" in str(found)  # three labels an item


@pytest.mark.parametrize(("two", "labels"), [(0.0, 15), (0.2, 15)])
def test_where_people_err_it_says_so_and_where_they_differ_it_finds_the_items(two: float, labels: int) -> None:
    answers, truth, mixed = simulated(0, two, labels=labels)
    consensus = DefaultCombiner().fit(Evidence(answers))
    found = disagreement(Evidence(answers), consensus)
    assert found.disputed.mean() > 0.7  # however they answer, most items have different answers
    assert found.differ.mean() == pytest.approx(two, abs=0.06)
    if two:
        assert np.mean((found.differ > 0.5) == mixed) > 0.9
    others = predictions(answers, consensus)
    divergence = {name: np.mean(np.sum(truth * np.log(truth / p_nl), axis=1)) for name, p_nl in others.items()}
    assert divergence["soft"] <= min(divergence["belief"], divergence["votes"] / 2, divergence["annotators"] + 0.003)


def test_a_left_out_answer_is_not_seen() -> None:
    answers = simulated(1, 0.2)[0]
    given = left_out(answers, 0)
    assert len(given.annotations) == len(answers) - answers.n_items
    assert (np.bincount(given.item) == 1).all()
    assert (given.annotations.labels_per_item == answers.labels_per_item - 1).all()
    assert LEAST == 3


@pytest.mark.parametrize("name", ["weather_amt", "face_sentiment", "bluebirds"])
def test_held_out_answers_of_people_are_predicted_better_than_by_others(name: str) -> None:
    found = [losses(crowd(name).annotations, seed) for seed in range(3)]
    mean = {key: np.mean([row[key] for row in found]) for key in found[0]}
    assert mean["soft"] < min(mean["belief"], mean["annotators"])
    assert mean["soft"] < mean["votes"] + 0.01


def test_what_it_cannot_do_is_refused(small: tuple[Evidence, Consensus], monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, consensus = small
    nothing = np.zeros(0, int)
    empty = replace(evidence.annotations, item=nothing, annotator=nothing, label=nothing)
    with pytest.raises(BadEvidence, match="about whole items"):
        disagreement(Evidence(empty), consensus)
    monkeypatch.setattr(module, "LARGEST", 30)
    with pytest.raises(BadEvidence, match="100 million"):
        disagreement(evidence, consensus)
