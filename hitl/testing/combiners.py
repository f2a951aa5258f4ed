"""Contract of a combiner: evidence in, consensus out. Long because it is one list of facts.

`check_combiner` checks all facts. FACTS lists them one by one, for one test each:

    @pytest.mark.parametrize("fact", FACTS)
    def test_contract(fact):
        FACTS[fact](Loudest())
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hitl import score
from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadInput, IgnoredEvidence
from hitl.evidence import Evidence
from hitl.models.combine import fit as fitted
from hitl.models.combiner import EVIDENCE, Applicable, Combiner, fits_shards, given, name_of, needs_of, without
from hitl.models.inference.engine import Shards
from hitl.models.majority import MajorityVote
from hitl.models.methods import COMBINERS
from hitl.testing.contract import DoesNotApply, Fact, add_to, check, refused
from hitl.testing.crowds import part, reordered, restricted_to_uses, sample, single_labels, with_everything

FACTS: dict[str, Fact[Any]] = {}
"""Fact in words -> a function that checks a combiner."""

fact = add_to(FACTS)

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "more options than classes (a label may be an option >= J, which no class has)": {"n_options": 5},
    "an anonymous pool": {"pool": 50},
    "items without labels": {"unlabeled": 10},
    "models that abstain": {"abstaining": 0.4},
    "two classes": {"n_classes": 2},
    "one annotator": {"n_annotators": 1},
    "sparse": {"asked": 0.15},
    "annotators alone": {"models": 0},
    "annotators alone and nothing known": {"models": 0, "known": 0.0},
}
ORDERS = ("rows", "items", "annotators", "classes")


def check_combiner(combiner: Combiner, exempt: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError if this combiner breaks the contract. The message names the first fact that does not hold.

    `exempt`: fact to leave out -> reason why it does not hold for this combiner.

    Example:
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import check_combiner
        >>> check_combiner(MajorityVote())
    """
    check(FACTS, combiner, exempt or {})


def asked(combiner: Any, contract: Any) -> None:
    """Raise DoesNotApply if the combiner lacks the methods of `contract`."""
    if not isinstance(combiner, contract):
        raise DoesNotApply(f"{type(combiner).__name__} is not {contract.__name__}")


# -- shape ---------------------------------------------------------------------------------------------------


def gives_a_consensus(shape: Mapping[str, Any], combiner: Combiner) -> None:
    """Check shapes, names, sums and ranges of a consensus."""
    evidence, _ = sample(combiner, **shape)
    annotations = evidence.annotations
    if needs_of(combiner) - given(evidence):
        raise DoesNotApply(f"{type(combiner).__name__} needs {', '.join(sorted(needs_of(combiner)))}")
    consensus = combiner.fit(evidence)
    assert consensus.items == annotations.items
    assert consensus.classes == annotations.classes
    p = consensus.probabilities
    assert p.shape == (annotations.n_items, annotations.n_classes)
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(consensus.class_shares.sum(), 1, atol=1e-6)
    report = consensus.annotators
    assert (report.names, report.options) == (annotations.annotators, annotations.options)
    shape_kjl = (annotations.n_annotators, annotations.n_classes, annotations.n_options)
    assert report.confusion.shape == report.concentration.shape == shape_kjl
    np.testing.assert_allclose(report.confusion.sum(axis=2), 1, atol=1e-9)
    assert (report.concentration > 0).all()
    np.testing.assert_array_equal(report.labels, annotations.labels_per_annotator)
    low, high = report.interval
    assert ((low >= 0) & (low <= report.accuracy) & (report.accuracy <= high) & (high <= 1)).all()


FACTS |= {f"gives a consensus: {name}": partial(gives_a_consensus, shape) for name, shape in SHAPES.items()}


def _accuracies(combiner: Combiner) -> tuple[float, float]:
    """Return the accuracies of this combiner and of the majority vote on items without ground truth."""
    evidence, truth = sample(combiner, seed=1, n_items=200)
    unknown = ~evidence.known
    vote = MajorityVote().fit(restricted_to_uses(MajorityVote(), evidence))
    p, voted = combiner.fit(evidence).probabilities, vote.probabilities
    return score.accuracy(p[unknown], truth[unknown]), score.accuracy(voted[unknown], truth[unknown])


@fact
def better_than_chance(combiner: Combiner) -> None:
    assert _accuracies(combiner)[0] > 0.4


@fact
def not_worse_than_a_vote(combiner: Combiner) -> None:
    accuracy, vote = _accuracies(combiner)
    assert vote > 0.7
    assert accuracy >= vote - 0.02


@fact
def known_truth_is_kept_whatever_annotators_say(combiner: Combiner) -> None:
    evidence, truth = sample(combiner, seed=2, known=0.4)
    wrong = np.where(evidence.known, (truth + 1) % 3, -1)
    consensus = combiner.fit(replace(evidence, truth=wrong))
    known = evidence.known
    np.testing.assert_array_equal(consensus.probabilities[known], np.eye(3)[wrong[known]])


@fact
def an_item_without_labels_or_predictions_gets_the_prior(combiner: Combiner) -> None:
    evidence, _ = sample(combiner, seed=3, unlabeled=4, known=0.0)
    first = np.arange(40)
    truth = np.where(first < 20, 0, -1)
    truth[:20] = evidence.annotations.label[evidence.annotations.item_start[:20]] % 3
    abstaining = {model: np.where(first[:, None] >= 36, np.nan, p) for model, p in evidence.probabilities.items()}
    bare = replace(evidence, probabilities=abstaining, truth=truth, features=np.zeros((40, 2)))
    consensus = combiner.fit(restricted_to_uses(combiner, bare))
    last = consensus.probabilities[36:]
    np.testing.assert_allclose(last, np.tile(last[0], (4, 1)), atol=1e-9)
    even, shares = np.full(3, 1 / 3), consensus.class_shares
    assert np.allclose(last[0], even, atol=1e-6) or np.allclose(last[0], shares, atol=0.02)


# -- evidence used --------------------------------------------------------------------------------------------


def _without_words(combiner: Combiner, evidence: Evidence) -> tuple[Floats, list[str]]:
    """Return (N, J) probabilities, and the warnings about ignored evidence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p = combiner.fit(evidence).probabilities
    return p, [str(warning.message) for warning in caught if issubclass(warning.category, IgnoredEvidence)]


def _changed(evidence: Evidence, kind: str) -> Evidence:
    moved = np.roll(np.arange(evidence.annotations.n_items), 7)
    if kind == "probabilities":
        return replace(evidence, probabilities={model: p[moved] for model, p in evidence.probabilities.items()})
    if kind == "truth":
        assert evidence.truth is not None
        return replace(evidence, truth=np.where(evidence.known, (evidence.truth + 1) % 3, -1))
    value = getattr(evidence, kind)
    return replace(evidence, **{kind: value[moved][:, moved] if kind == "graph" else value[moved]})


@fact
def what_is_not_used_is_named_in_a_warning(combiner: Combiner) -> None:
    everything, _ = with_everything(seed=22)
    used = without(everything, given(everything) - combiner.uses)
    answer, said = _without_words(combiner, used)
    assert not said, f"it uses {sorted(combiner.uses)}, but says: {said[0]}"
    for kind in EVIDENCE:
        if kind in combiner.uses:
            other, _ = _without_words(combiner, _changed(used, kind))
            assert np.abs(other - answer).max() > 1e-9, f"other {kind} change nothing, and no warning says so"
            continue
        more = replace(used, **{kind: getattr(everything, kind)})
        other, said = _without_words(combiner, more)
        warned = any(kind in words and name_of(combiner) in words for words in said)
        assert warned, (
            f"no warning says: ignores {kind}; begin fit by evidence = hitl.models.combiner.used(self, evidence)"
        )
        np.testing.assert_allclose(other, answer, atol=1e-9, err_msg=f"it uses {kind}, but does not declare it")


@fact
def without_what_it_needs_it_says_what_to_supply(combiner: Combiner) -> None:
    full, truth = sample(combiner, seed=15)
    bare = Evidence(full.annotations)
    if needs_of(combiner):
        with refused(BadEvidence, "found none", *needs_of(combiner)):
            combiner.fit(bare)
    else:
        combiner.fit(bare)
    # It must also accept full evidence.
    combiner.fit(restricted_to_uses(combiner, replace(full, truth=np.where(np.arange(40) < 20, truth, -1))))


# -- symmetries ----------------------------------------------------------------------------------------------


def same_in_another_order(what: str, combiner: Combiner) -> None:
    """Check that reordering rows, items, annotators or classes reorders the result in the same way."""
    evidence, _ = sample(combiner, seed=4, n_items=60, n_options=4, pool=20, unlabeled=3, abstaining=0.1)
    evidence = without(evidence, frozenset({"sequence", "graph"}) - needs_of(combiner))
    rng, a = np.random.default_rng(5), evidence.annotations
    sizes = {"rows": len(a), "items": a.n_items, "annotators": a.n_annotators, "classes": a.n_classes}
    assert_permuted(combiner, evidence, {what: rng.permutation(sizes[what])})


FACTS |= {f"the order of {what} does not matter": partial(same_in_another_order, what) for what in ORDERS}


def assert_permuted(
    combiner: Combiner, evidence: Evidence, order: dict[str, NDArray[np.intp]], atol: float = 1e-6
) -> None:
    """Raise AssertionError unless the result for the reordered evidence is the reordered result."""
    plain, moved = combiner.fit(evidence), combiner.fit(reordered(evidence, **order))
    n, j = evidence.annotations.n_items, evidence.annotations.n_classes
    items, classes = order.get("items", np.arange(n)), order.get("classes", np.arange(j))
    annotators = order.get("annotators", np.arange(evidence.annotations.n_annotators))
    options = np.concatenate((classes, np.arange(j, evidence.annotations.n_options))).astype(int)
    np.testing.assert_allclose(moved.probabilities, plain.probabilities[np.ix_(items, classes)], atol=atol)
    expected = plain.annotators.confusion[np.ix_(annotators, classes, options)]
    np.testing.assert_allclose(moved.annotators.confusion, expected, atol=atol)
    np.testing.assert_allclose(moved.class_shares, plain.class_shares[classes], atol=atol)


@fact
def names_do_not_matter(combiner: Combiner) -> None:
    evidence, _ = sample(combiner, seed=6)
    a = evidence.annotations
    renamed = replace(
        a,
        items=tuple(range(40)),
        annotators=tuple(f"ünï {k}" for k in range(a.n_annotators)),
        classes=(9, 3, 7),
        options=(9, 3, 7),
    )
    plain, other = combiner.fit(evidence), combiner.fit(replace(evidence, annotations=renamed))
    np.testing.assert_allclose(other.probabilities, plain.probabilities, atol=1e-9)
    assert other.classes == (9, 3, 7)


# -- manners -------------------------------------------------------------------------------------------------


def _snapshot(evidence: Evidence) -> list[bytes]:
    a = evidence.annotations
    arrays = [a.item, a.annotator, a.label, evidence.truth, evidence.features, evidence.sequence]
    arrays += [*evidence.probabilities.values(), None if evidence.graph is None else evidence.graph.toarray()]
    return [array.tobytes() for array in arrays if array is not None]


@fact
def a_fit_changes_nothing_and_remembers_nothing(combiner: Combiner) -> None:
    evidence, _ = sample(combiner, seed=7)
    before, as_it_was = _snapshot(evidence), copy(combiner)
    first = combiner.fit(evidence).probabilities
    combiner.fit(sample(combiner, seed=8)[0])
    # The last digit of a sum may depend on where the arrays lie in memory.
    np.testing.assert_allclose(combiner.fit(evidence).probabilities, first, atol=1e-9)
    assert _snapshot(evidence) == before
    assert combiner == as_it_was


@fact
def settings_are_frozen(combiner: Any) -> None:
    assert dataclasses.is_dataclass(combiner), "it is no dataclass; expected @dataclass(frozen=True)"
    for name in [field.name for field in dataclasses.fields(combiner)] or ["a_setting"]:
        try:
            setattr(combiner, name, 1)
        except (FrozenInstanceError, TypeError):  # Python 3.11 raises TypeError for other names of a class with slots
            continue
        raise AssertionError(f"{name} can be set; expected @dataclass(frozen=True)")


@fact
def how_the_fit_went_is_part_of_the_result(combiner: Combiner) -> None:
    fit = fitted(combiner, sample(combiner, seed=9)[0]).fit
    assert fit.method == name_of(combiner)
    assert fit.seconds >= 0
    assert isinstance(fit.converged, bool)
    assert np.isfinite(fit.objective).all()
    assert json.loads(json.dumps(dict(fit.settings))) == dict(fit.settings)


@fact
def its_settings_are_those_of_the_fit(combiner: Any) -> None:
    if name_of(combiner) not in COMBINERS:
        raise DoesNotApply(f"{type(combiner).__name__} has no name by which it could be made again")
    fit = combiner.fit(sample(combiner, seed=9)[0]).fit
    assert set(fit.settings) == {field.name for field in dataclasses.fields(combiner)}


@fact
def a_result_is_saved_and_loaded_whole(combiner: Combiner) -> None:
    consensus = combiner.fit(sample(combiner, seed=10, pool=5)[0])
    with tempfile.TemporaryDirectory() as folder:
        consensus.save(Path(folder) / "c.npz")
        again = Consensus.load(Path(folder) / "c.npz")
    np.testing.assert_array_equal(again.probabilities, consensus.probabilities)
    np.testing.assert_array_equal(again.annotators.confusion, consensus.annotators.confusion)
    assert again.fit == consensus.fit
    assert again.temperatures == consensus.temperatures
    assert again.frame().equals(consensus.frame())


@fact
def a_start_changes_nothing_in_the_answer(combiner: Combiner) -> None:
    evidence, _ = sample(combiner, seed=11, n_items=80)
    cold = combiner.fit(evidence)
    np.testing.assert_allclose(combiner.fit(evidence, start=cold).probabilities, cold.probabilities, atol=0.02)


@fact
def a_start_of_other_annotators_items_or_classes_does_no_harm(combiner: Combiner) -> None:
    evidence, truth = sample(combiner, seed=12, n_items=150)
    unknown = ~evidence.known
    plain = score.accuracy(combiner.fit(evidence).probabilities[unknown], truth[unknown])
    for shape in ({"n_classes": 2}, {"n_options": 4}, {"n_annotators": 2}, {"models": 1}):
        start = combiner.fit(sample(combiner, seed=13, n_items=20, **shape)[0])
        warm = combiner.fit(evidence, start=start).probabilities
        assert score.accuracy(warm[unknown], truth[unknown]) >= plain - 0.05


# -- small and degenerate ------------------------------------------------------------------------------------


@fact
def two_items_and_one_label_are_enough(combiner: Combiner) -> None:
    annotations = Annotations.from_frame(
        {"item": ["a"], "annotator": ["ann"], "label": ["x"]}, items=["a", "b"], classes=["x", "y"]
    )
    evidence = Evidence(
        annotations,
        {"m": np.array([[0.6, 0.4], [0.5, 0.5]])},
        features=np.array([[0.0], [1.0]]),
        truth=np.array([0, -1], np.int32),
        sequence=np.array([[0, 0], [0, 1]]),
        graph=sparse.csr_array([[0, 1], [1, 0]]),
    )
    p = combiner.fit(restricted_to_uses(combiner, evidence)).probabilities
    assert np.isfinite(p).all()
    assert p[0].tolist() == [1, 0] or "truth" not in combiner.uses
    assert p[1].min() > 0  # a combiner close to maximum likelihood may be very sure after one label, but never certain


@fact
def no_labels_and_no_annotators_are_no_error(combiner: Combiner) -> None:
    evidence, _ = sample(combiner, seed=14, known=0.2)
    none = evidence.annotations.select(np.zeros(len(evidence.annotations), dtype=bool))
    for nothing in (none, replace(none, annotators=())):
        assert np.isfinite(combiner.fit(replace(evidence, annotations=nothing)).probabilities).all()


@fact
def all_agreeing_is_no_error_and_very_sure(combiner: Combiner) -> None:
    matrix = np.tile(np.arange(12)[:, None] % 3, (1, 4))
    evidence = Evidence(
        Annotations.from_matrix(matrix),
        {"m": np.full((12, 3), 0.05) + 0.85 * np.eye(3)[matrix[:, 0]]},
        truth=np.where(np.arange(12) < 6, matrix[:, 0], -1).astype(np.int32),
        features=np.eye(3)[matrix[:, 0]],
        sequence=np.stack((np.zeros(12, int), np.arange(12)), axis=1),
        graph=sparse.csr_array((12, 12)),
    )
    consensus = combiner.fit(restricted_to_uses(combiner, evidence))
    assert (consensus.codes == matrix[:, 0]).all()
    assert consensus.confidence.min() > 0.75


@fact
def a_single_label_is_the_answer_where_nothing_can_be_compared(combiner: Combiner) -> None:
    if needs_of(combiner):
        raise DoesNotApply(f"{type(combiner).__name__} compares labels with {', '.join(sorted(needs_of(combiner)))}")
    for habits in (0.3, 3.0):  # annotators who give almost always the same label, and annotators who give all
        annotations = single_labels(np.random.default_rng(25), 40, habits=habits)
        consensus = combiner.fit(Evidence(annotations))
        np.testing.assert_array_equal(consensus.codes, annotations.label)


# -- predicting new items -------------------------------------------------------------------------------------


@fact
def what_was_learned_judges_other_items(combiner: Any) -> None:
    asked(combiner, Applicable)
    evidence, truth = sample(combiner, seed=16, n_items=200)
    learned = combiner.fit(evidence)
    before = learned.to_bytes()
    p = combiner.apply(learned, replace(evidence, truth=None)).probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert score.accuracy(p, truth) > 0.75
    assert learned.to_bytes() == before
    knowing = combiner.apply(learned, evidence)
    assert (knowing.codes[evidence.known] == truth[evidence.known]).all()
    unknown = ~evidence.known
    np.testing.assert_allclose(knowing.probabilities[unknown], p[unknown], atol=1e-9)
    few = combiner.apply(replace(learned, difficulty=np.zeros(200)), sample(combiner, seed=21, n_items=7)[0])
    assert (few.probabilities.shape, few.difficulty) == ((7, 3), None)
    saved = Consensus.from_bytes(learned.to_bytes())
    np.testing.assert_allclose(combiner.apply(saved, replace(evidence, truth=None)).probabilities, p, atol=1e-12)


@fact
def items_it_learned_from_are_judged_as_before(combiner: Any) -> None:
    asked(combiner, Applicable)
    evidence, _ = sample(combiner, seed=16, n_items=200)
    learned, unknown = combiner.fit(evidence), ~evidence.known
    p = combiner.apply(learned, replace(evidence, truth=None)).probabilities
    np.testing.assert_allclose(p[unknown], learned.probabilities[unknown], atol=0.02)


@fact
def gold_questions_can_be_checked(combiner: Any) -> None:
    asked(combiner, Applicable)
    evidence, truth = sample(combiner, seed=23, n_items=120, known=0.4)
    gold = evidence.known
    blind = combiner.apply(combiner.fit(evidence), replace(evidence, truth=None)).probabilities
    assert (blind[gold].max(axis=1) < 1).any(), "it remembers the truth that it was given"
    assert score.accuracy(blind[gold], truth[gold]) > 0.6


@fact
def other_classes_cannot_be_judged(combiner: Any) -> None:
    asked(combiner, Applicable)
    learned = combiner.fit(sample(combiner, seed=17)[0])
    for shape in ({"n_classes": 4}, {"n_classes": 2}):
        with refused(BadInput, "classes"):
            combiner.apply(learned, sample(combiner, seed=18, **shape)[0])


@fact
def shards_are_fitted_as_one_table(combiner: Any) -> None:
    if not fits_shards(combiner):
        raise DoesNotApply(f"{type(combiner).__name__} needs all labels in memory")
    evidence, _ = sample(combiner, seed=24, n_items=80)
    whole = combiner.fit(evidence)
    shards = [part(evidence, first, last) for first, last in ((0, 30), (30, 50), (50, 80))]
    learned = combiner.fit(Shards(shards))
    assert not learned.items
    np.testing.assert_array_equal(learned.annotators.labels, whole.annotators.labels)
    judged = combiner.apply(whole, evidence).probabilities
    np.testing.assert_allclose(combiner.apply(learned, evidence).probabilities, judged, atol=1e-6)
    np.testing.assert_allclose(judged, whole.probabilities, atol=0.01)  # parameters are one iteration apart
