"""What every combiner must do. Combiners are found by looking into the modules of hitl.models, so a new one is
tested without being listed; what one may do otherwise stands in EXEMPT, with the reason.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import warnings
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import hitl.models
from hitl import catalog, score
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadInput
from hitl.evidence import Evidence
from hitl.models.combiner import Applicable, Followable, Updatable
from tests import oracles
from tests.changing_crowds import then_and_now

EXEMPT: dict[tuple[str, str], str] = {
    ("WeightedMajority", "a start changes nothing in the answer"): "always votes from equal weights; nothing to start",
    ("WeightedSum", "a start changes nothing in the answer"): "always votes from equal weights; nothing to start",
    ("MeanScore", "a start changes nothing in the answer"): "a closed form; has nothing to start",
    ("MeanScore", "not worse than a vote"): "reads answers as numbers on a line; these classes have no order",
    ("MeanScore", "the order of the classes does not matter"): "without numbers as names, the order gives the scores",
    ("MeanScore", "names do not matter"): "names that are numbers are the scores",
    ("MomentMatching", "a start changes nothing in the answer"): "matches moments from a fixed start; one answer",
    ("GibbsIBCC", "another order permutes the answer exactly"): "up to chance: see test_gibbs_ibcc",
    ("GibbsIBCC", "items it learned from are judged as before"): "an item's own labels do not count in its judgement",
    ("EBCC", "another order permutes the answer exactly"): "up to chance: see test_ebcc",
    ("DBCC", "another order permutes the answer exactly"): "up to chance: see test_dbcc",
    ("DBCC", "a start changes nothing in the answer"): "up to chance: see test_dbcc",
    ("EDBCC", "a start changes nothing in the answer"): "up to chance: see test_edbcc",
    ("EDBCC", "another order permutes the answer exactly"): "up to chance: see test_edbcc",
    ("PL", "a start changes nothing in the answer"): "fits in one step from the known items; has nothing to start",
    ("LL", "a start changes nothing in the answer"): "fits in one step from the known items; has nothing to start",
    ("SP", "a start changes nothing in the answer"): "fits in one step from the known items; has nothing to start",
    ("LR", "a start changes nothing in the answer"): "minimises a convex objective: one answer from any start",
    ("BayesianPL", "a start changes nothing in the answer"): "integrates in one step; has nothing to start",
    ("MajorityVote", "a start changes nothing in the answer"): "a closed form; has nothing to start",
    ("DefaultCombiner", "its settings are those of the fit"): "reports the settings of the method it chose",
}
"""(class, fact) -> why it does not hold."""


def discover() -> dict[str, type]:
    """Every class of hitl.models that is a dataclass with its own `fit(evidence, start)`."""
    found = {}
    for entry in pkgutil.walk_packages(hitl.models.__path__, "hitl.models."):
        module = importlib.import_module(entry.name)
        for name, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
            if own and dataclasses.is_dataclass(value) and _combines(value):
                found[name] = value
    return found


def _combines(made: type) -> bool:
    """Whether its own `fit` takes evidence and a start: what a combiner is told from other models by."""
    return "fit" in vars(made) and list(inspect.signature(vars(made)["fit"]).parameters) == [
        "self",
        "evidence",
        "start",
    ]


COMBINERS = discover()
everyone = pytest.mark.parametrize("name", COMBINERS)


def make(name: str) -> Any:
    return COMBINERS[name]()


def exempt(name: str, fact: str) -> None:
    if (name, fact) in EXEMPT:
        pytest.skip(EXEMPT[name, fact])


def all_known(seed: int = 0, n_items: int = 40, **shape: Any) -> tuple[Evidence, np.ndarray]:
    """Evidence with everything a combiner may need, and the truth."""
    rng = np.random.default_rng(seed)
    shape = {"n_annotators": 5, "n_classes": 3, "models": 2, "known": 0.3, "asked": 0.8} | shape
    evidence, truth = oracles.crowd(rng, n_items, **shape)
    ring = sparse.eye_array(n_items, k=1, format="csr")
    return (
        replace(
            evidence,
            features=rng.normal(size=(n_items, 2)) + truth[:, None],
            sequence=np.stack((np.arange(n_items) // 10, np.arange(n_items) % 10), axis=1),
            graph=ring + ring.T,
        ),
        truth,
    )


def test_combiners_are_found() -> None:
    assert {"MajorityVote", "DawidSkene", "PL", "PLEM"} <= set(COMBINERS)


def test_the_catalog_lists_exactly_the_combiners_found() -> None:
    listed = {catalog.COMBINERS.load(name).__name__: catalog.COMBINERS.load(name) for name in catalog.COMBINERS}
    assert listed == COMBINERS
    assert set(COMBINERS) <= set(hitl.models.__all__)
    assert all(getattr(hitl.models, name) is found for name, found in COMBINERS.items())


def test_every_exemption_is_of_a_combiner_that_exists() -> None:
    assert {name for name, _ in EXEMPT} <= set(COMBINERS)
    assert all(EXEMPT.values())


# -- shape ---------------------------------------------------------------------------------------------------


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "more options than classes": {"n_options": 5},
    "an anonymous pool": {"pool": 50},
    "items without labels": {"unlabeled": 10},
    "silent models": {"silent": 0.4},
    "two classes": {"n_classes": 2},
    "one annotator": {"n_annotators": 1},
    "sparse": {"asked": 0.15},
    "people alone": {"models": 0},
    "people alone and nothing known": {"models": 0, "known": 0.0},
}


def fit_or_skip(name: str, evidence: Evidence) -> Consensus:
    """The fit; skips where the combiner says that it needs what is not there."""
    try:
        found: Consensus = make(name).fit(evidence)
    except BadEvidence as error:
        if "found none" not in str(error):
            raise
        pytest.skip(str(error))
    return found


@everyone
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_evidence_in_consensus_out(name: str, shape: dict[str, Any]) -> None:
    evidence, _ = all_known(**shape)
    annotations = evidence.annotations
    consensus = fit_or_skip(name, evidence)
    assert consensus.items == annotations.items
    assert consensus.classes == annotations.classes
    p = consensus.probabilities
    assert p.shape == (annotations.n_items, annotations.n_classes)
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert consensus.class_shares.sum() == pytest.approx(1)
    people = consensus.annotators
    assert (people.names, people.options) == (annotations.annotators, annotations.options)
    shape_kjl = (annotations.n_annotators, annotations.n_classes, annotations.n_options)
    assert people.confusion.shape == people.concentration.shape == shape_kjl
    np.testing.assert_allclose(people.confusion.sum(axis=2), 1, atol=1e-9)
    assert (people.concentration > 0).all()
    np.testing.assert_array_equal(people.labels, annotations.labels_per_annotator)
    low, high = people.interval
    assert ((low >= 0) & (low <= people.accuracy) & (people.accuracy <= high) & (high <= 1)).all()


@everyone
def test_it_is_better_than_chance_and_not_worse_than_a_vote(name: str) -> None:
    evidence, truth = all_known(seed=1, n_items=200)
    unknown = ~evidence.known
    found = score.accuracy(make(name).fit(evidence).probabilities[unknown], truth[unknown])
    vote = score.accuracy(make("MajorityVote").fit(evidence).probabilities[unknown], truth[unknown])
    assert found > 0.4
    assert vote > 0.7
    exempt(name, "not worse than a vote")
    assert found >= vote - 0.02


@everyone
def test_known_truth_is_respected_whatever_people_say(name: str) -> None:
    evidence, truth = all_known(seed=2, known=0.4)
    wrong = replace(evidence, truth=np.where(evidence.known, (truth + 1) % 3, -1))
    consensus = make(name).fit(wrong)
    known = wrong.known
    np.testing.assert_array_equal(consensus.probabilities[known], np.eye(3)[wrong.truth[known]])


@everyone
def test_an_item_without_labels_or_predictions_gets_the_prior(name: str) -> None:
    evidence, _ = all_known(seed=3, unlabeled=4, known=0.0)
    told = np.where(np.arange(40) < 20, 0, -1)
    told[:20] = evidence.annotations.label[evidence.annotations.item_start[:20]] % 3
    silenced = {m: np.where(np.arange(40)[:, None] >= 36, np.nan, p) for m, p in evidence.probabilities.items()}
    consensus = make(name).fit(replace(evidence, probabilities=silenced, truth=told, features=np.zeros((40, 2))))
    last = consensus.probabilities[36:]
    np.testing.assert_allclose(last, np.tile(last[0], (4, 1)), atol=1e-9)  # nothing tells them apart
    even, shares = np.full(3, 1 / 3), consensus.class_shares
    assert np.allclose(last[0], even, atol=1e-6) or np.allclose(last[0], shares, atol=0.02)


# -- symmetries ----------------------------------------------------------------------------------------------


def assert_permuted(name: str, evidence: Evidence, order: dict[str, np.ndarray], atol: float = 1e-6) -> None:
    plain, moved = make(name).fit(evidence), make(name).fit(oracles.reordered(evidence, **order))
    n, j = evidence.annotations.n_items, evidence.annotations.n_classes
    items, classes = order.get("items", np.arange(n)), order.get("classes", np.arange(j))
    people = order.get("annotators", np.arange(evidence.annotations.n_annotators))
    options = np.concatenate((classes, np.arange(j, evidence.annotations.n_options))).astype(int)
    np.testing.assert_allclose(moved.probabilities, plain.probabilities[np.ix_(items, classes)], atol=atol)
    expected = plain.annotators.confusion[np.ix_(people, classes, options)]
    np.testing.assert_allclose(moved.annotators.confusion, expected, atol=atol)
    np.testing.assert_allclose(moved.class_shares, plain.class_shares[classes], atol=atol)


@everyone
@pytest.mark.parametrize("what", ["rows", "items", "annotators", "classes", "everything"])
def test_other_orders_and_names_permute_the_result(name: str, what: str) -> None:
    if what in ("classes", "everything"):
        exempt(name, "the order of the classes does not matter")
    if what != "rows":
        exempt(name, "another order permutes the answer exactly")
    evidence, _ = all_known(seed=4, n_items=60, n_options=4, pool=20, unlabeled=3, silent=0.1)
    evidence = replace(evidence, sequence=None, graph=None)
    rng = np.random.default_rng(5)
    a = evidence.annotations
    sizes = {"rows": len(a), "items": a.n_items, "annotators": a.n_annotators, "classes": a.n_classes}
    assert_permuted(
        name, evidence, {key: rng.permutation(size) for key, size in sizes.items() if what in (key, "everything")}
    )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_votes_are_the_same_in_any_order(seed: int) -> None:
    """A closed form has no ties to break: any small evidence will do."""
    evidence, _ = oracles.crowd(np.random.default_rng(seed), 8, 3, 3, 4, pool=5, known=0.2, unlabeled=2)
    rng = np.random.default_rng(seed)
    a = evidence.annotations
    order = {"items": rng.permutation(8), "annotators": rng.permutation(a.n_annotators), "classes": rng.permutation(3)}
    assert_permuted("MajorityVote", evidence, order, atol=1e-12)


@everyone
def test_names_do_not_matter(name: str) -> None:
    exempt(name, "names do not matter")
    evidence, _ = all_known(seed=6)
    a = evidence.annotations
    renamed = replace(
        a,
        items=tuple(range(40)),
        annotators=tuple(f"ünï {k}" for k in range(a.n_annotators)),
        classes=(9, 3, 7),
        options=(9, 3, 7),
    )
    plain, other = make(name).fit(evidence), make(name).fit(replace(evidence, annotations=renamed))
    np.testing.assert_allclose(other.probabilities, plain.probabilities, atol=1e-9)
    assert other.classes == (9, 3, 7)


# -- manners -------------------------------------------------------------------------------------------------


def snapshot(evidence: Evidence) -> list[bytes]:
    a = evidence.annotations
    arrays = [a.item, a.annotator, a.label, evidence.truth, evidence.features, evidence.sequence]
    arrays += [*evidence.probabilities.values(), evidence.graph.toarray()]
    return [array.tobytes() for array in arrays]


@everyone
def test_a_fit_changes_nothing_and_remembers_nothing(name: str) -> None:
    evidence, _ = all_known(seed=7)
    other, _ = all_known(seed=8)
    before = snapshot(evidence)
    combiner = make(name)
    first = combiner.fit(evidence).probabilities
    combiner.fit(other)
    # Sums over arrays may differ in the last digit with where the arrays lie in memory.
    np.testing.assert_allclose(combiner.fit(evidence).probabilities, first, atol=1e-9)
    assert snapshot(evidence) == before
    assert combiner == make(name)


@everyone
def test_settings_are_frozen(name: str) -> None:
    combiner = make(name)
    for field in dataclasses.fields(combiner):
        with pytest.raises(FrozenInstanceError):
            setattr(combiner, field.name, 1)
    assert not hasattr(combiner, "__dict__"), "slots=True keeps a fit from leaving anything behind"


@everyone
def test_how_the_fit_went_is_part_of_the_result(name: str) -> None:
    fit = make(name).fit(all_known(seed=9)[0]).fit
    assert fit.method in catalog.COMBINERS
    assert fit.seconds > 0
    assert isinstance(fit.converged, bool)
    assert np.isfinite(fit.objective).all()
    assert json.loads(json.dumps(dict(fit.settings))) == dict(fit.settings)
    if (name, "its settings are those of the fit") not in EXEMPT:
        assert set(fit.settings) == {field.name for field in dataclasses.fields(make(name))}


@everyone
def test_a_result_is_saved_and_loaded_whole(name: str, tmp_path: Path) -> None:
    consensus = make(name).fit(all_known(seed=10, pool=5)[0])
    consensus.save(tmp_path / "c.npz")
    again = Consensus.load(tmp_path / "c.npz")
    np.testing.assert_array_equal(again.probabilities, consensus.probabilities)
    np.testing.assert_array_equal(again.annotators.confusion, consensus.annotators.confusion)
    assert again.fit == consensus.fit
    assert again.temperatures == consensus.temperatures
    assert again.frame().equals(consensus.frame())


@everyone
def test_a_start_changes_nothing_in_the_answer(name: str) -> None:
    exempt(name, "a start changes nothing in the answer")
    evidence, _ = all_known(seed=11, n_items=80)
    cold = make(name).fit(evidence)
    warm = make(name).fit(evidence, start=cold)
    np.testing.assert_allclose(warm.probabilities, cold.probabilities, atol=0.02)
    assert warm.fit.iterations < cold.fit.iterations


@everyone
def test_a_start_of_other_people_items_or_classes_does_no_harm(name: str) -> None:
    evidence, truth = all_known(seed=12, n_items=150)
    unknown = ~evidence.known
    plain = score.accuracy(make(name).fit(evidence).probabilities[unknown], truth[unknown])
    for shape in ({"n_classes": 2}, {"n_options": 4}, {"n_annotators": 2}, {"models": 1}):
        other = all_known(seed=13, n_items=20, **shape)[0]
        start = make(name).fit(other)
        found = make(name).fit(evidence, start=start).probabilities
        assert score.accuracy(found[unknown], truth[unknown]) >= plain - 0.05


# -- small and degenerate ------------------------------------------------------------------------------------


@everyone
def test_two_items_and_one_label_are_enough(name: str) -> None:
    annotations = Annotations.from_frame(
        {"item": ["a"], "annotator": ["ann"], "label": ["x"]}, items=["a", "b"], classes=["x", "y"]
    )
    evidence = Evidence(
        annotations,
        {"m": [[0.6, 0.4], [0.5, 0.5]]},
        features=[[0.0], [1.0]],
        truth=[0, -1],
        sequence=[[0, 0], [0, 1]],
        graph=sparse.csr_array([[0, 1], [1, 0]]),
    )
    p = make(name).fit(evidence).probabilities
    assert np.isfinite(p).all()
    assert p[0].tolist() == [1, 0]
    assert p[1].min() > 0  # nearly maximum likelihood may be very sure after one label, never certain


@everyone
def test_no_labels_at_all_are_no_error(name: str) -> None:
    evidence, _ = all_known(seed=14, known=0.2)
    none = evidence.annotations.select(np.zeros(len(evidence.annotations), dtype=bool))
    p = make(name).fit(replace(evidence, annotations=none)).probabilities
    assert np.isfinite(p).all()


@everyone
def test_nobody_and_no_labels_are_no_error(name: str) -> None:
    evidence, _ = all_known(seed=14, known=0.2)
    none = evidence.annotations.select(np.zeros(len(evidence.annotations), dtype=bool))
    p = make(name).fit(replace(evidence, annotations=replace(none, annotators=()))).probabilities
    assert np.isfinite(p).all()


@everyone
def test_everybody_agreeing_is_no_error_and_very_sure(name: str) -> None:
    matrix = np.tile(np.arange(12)[:, None] % 3, (1, 4))
    evidence = Evidence(
        Annotations.from_matrix(matrix),
        {"m": np.full((12, 3), 0.05) + 0.85 * np.eye(3)[matrix[:, 0]]},
        truth=np.where(np.arange(12) < 6, matrix[:, 0], -1),
        features=np.eye(3)[matrix[:, 0]],
        sequence=np.stack((np.zeros(12, int), np.arange(12)), axis=1),
        graph=sparse.csr_array((12, 12)),
    )
    consensus = make(name).fit(evidence)
    assert (consensus.labels == matrix[:, 0]).all()
    assert consensus.confidence.min() > 0.75


@everyone
def test_without_what_it_needs_it_says_what_to_supply(name: str) -> None:
    full, truth = all_known(seed=15)
    bare = Evidence(full.annotations)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            make(name).fit(bare)
        except BadEvidence as error:
            words = ("probabilities", "truth", "features", "sequence", "graph")
            assert any(word in str(error) for word in words), error  # noqa: PT017
            assert "found none" in str(error)  # noqa: PT017
    # Whatever it asked for, it is content when all is there.
    make(name).fit(replace(full, truth=np.where(np.arange(40) < 20, truth, -1)))


# -- judging what was not seen -------------------------------------------------------------------------------


@everyone
def test_what_was_learned_judges_other_items(name: str) -> None:
    combiner = make(name)
    if not isinstance(combiner, Applicable):
        pytest.skip(f"{name} is not Applicable")
    evidence, truth = all_known(seed=16, n_items=200)
    learned = combiner.fit(evidence)
    before = learned.to_bytes()
    p = combiner.apply(learned, replace(evidence, truth=None)).probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert score.accuracy(p, truth) > 0.75
    assert learned.to_bytes() == before
    told = combiner.apply(learned, evidence)
    assert (told.labels[evidence.known] == truth[evidence.known]).all()
    unknown = ~evidence.known
    np.testing.assert_allclose(told.probabilities[unknown], p[unknown], atol=1e-9)
    few = combiner.apply(replace(learned, difficulty=np.zeros(200)), all_known(seed=21, n_items=7)[0])
    assert (few.probabilities.shape, few.difficulty) == ((7, 3), None)
    saved = Consensus.from_bytes(learned.to_bytes())
    np.testing.assert_allclose(combiner.apply(saved, replace(evidence, truth=None)).probabilities, p, atol=1e-12)
    exempt(name, "items it learned from are judged as before")
    np.testing.assert_allclose(p[unknown], learned.probabilities[unknown], atol=0.02)


@everyone
def test_other_classes_cannot_be_judged(name: str) -> None:
    combiner = make(name)
    if not isinstance(combiner, Applicable):
        pytest.skip(f"{name} is not Applicable")
    learned = combiner.fit(all_known(seed=17)[0])
    for shape in ({"n_classes": 4}, {"n_classes": 2}):
        with pytest.raises(BadInput, match="classes"):
            combiner.apply(learned, all_known(seed=18, **shape)[0])


# -- new labels without a refit ------------------------------------------------------------------------------


@everyone
def test_an_update_takes_in_what_is_new_and_gone(name: str) -> None:
    combiner = make(name)
    if not isinstance(combiner, Updatable):
        pytest.skip(f"{name} is not Updatable")
    full, truth = all_known(seed=19, n_items=230, unlabeled=3, n_options=4, pool=20)
    then, now = then_and_now(full)
    learned = combiner.fit(then)
    before = learned.to_bytes()
    updated, refit = combiner.update(learned, now), combiner.fit(now)
    assert learned.to_bytes() == before
    assert (updated.items, updated.annotators.names) == (refit.items, refit.annotators.names)
    np.testing.assert_allclose(updated.probabilities, refit.probabilities, atol=0.1)
    np.testing.assert_array_equal(updated.annotators.labels, now.annotations.labels_per_annotator)
    np.testing.assert_array_equal(updated.labels[now.known], truth[now.known])
    assert updated.fit.settings == refit.fit.settings
    saved = combiner.update(Consensus.from_bytes(before), now)
    np.testing.assert_allclose(saved.probabilities, updated.probabilities, atol=1e-9)
    with pytest.raises(BadInput, match="classes"):
        combiner.update(learned, all_known(seed=18, n_classes=4)[0])


@everyone
def test_who_follows_the_labels_comes_to_what_a_fit_comes_to(name: str) -> None:
    combiner = make(name)
    if not isinstance(combiner, Followable):
        pytest.skip(f"{name} is not Followable")
    _, now = then_and_now(all_known(seed=19, n_items=230, n_options=4, pool=20)[0])
    learned = combiner.fit(now)
    live = combiner.follow(Consensus.from_bytes(learned.to_bytes()), now)
    np.testing.assert_allclose(live.consensus().probabilities, learned.probabilities, atol=0.02)
    live.label(now.annotations.items[0], "somebody new", now.annotations.classes[1])
    live.label("a new item", now.annotations.annotators[0], now.annotations.classes[2])
    followed = live.consensus()
    assert followed.items == (*now.annotations.items, "a new item")
    np.testing.assert_allclose(followed.probabilities, combiner.fit(live.evidence()).probabilities, atol=0.1)
