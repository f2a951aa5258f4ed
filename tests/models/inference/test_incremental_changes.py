"""What may change while a consensus follows the labels, and what may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hitl.annotations import ANONYMOUS, Annotations
from hitl.errors import BadAnnotations, BadEvidence
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.inference import incremental
from hitl.models.inference.incremental import IncrementalEM
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC
from hitl.testing.crowds import of_use
from tests import oracles
from tests.changing_crowds import assert_sums_are_exact, every_method, follow, some_crowd
from tests.tables import rows, said

# -- what may change -----------------------------------------------------------------------------------------


def plain() -> Evidence:
    return some_crowd(40, known=0.0, models=0, pool=0)


@every_method
def test_an_item_that_loses_all_labels_believes_the_prior(method: Any) -> None:
    evidence = of_use(method, some_crowd(40, known=0.0, pool=0, abstaining=1.0))
    live = follow(method, evidence)
    for item, annotator, _ in said(evidence.annotations):
        if item == "n3":
            live.withdraw(item, annotator)
    assert live.labels.size[3] == 0
    np.testing.assert_allclose(live.belief("n3"), live.belief("n29"), atol=0.01)  # nobody ever labeled n29
    now = live.consensus()
    np.testing.assert_allclose(now.probabilities[3], now.probabilities[29], atol=1e-9)


@every_method
def test_an_annotator_who_loses_all_labels_is_a_stranger(method: Any) -> None:
    evidence = of_use(method, some_crowd(41, known=0.0, pool=0))
    live = follow(method, evidence)
    for item, annotator, _ in said(evidence.annotations):
        if annotator == "k2":
            live.withdraw(item, annotator)
    report = live.consensus().annotators
    assert report.labels[2] == 0
    expected = live.rule.pseudo_jl if report.prior is None else report.prior
    np.testing.assert_allclose(report.concentration[2], expected, atol=1e-9)
    live.label("n0", "somebody new", "j0")
    assert live.labels.n_annotators == 7
    live.withdraw("n0", "somebody new")
    np.testing.assert_allclose(live.counts_klj[6], 0, atol=1e-12)


def test_an_edit_is_a_label_in_place_of_another() -> None:
    first, second = (follow(VBIBCC(), plain()) for _ in range(2))
    item, annotator, label = said(plain().annotations)[4]
    other = "j1" if label != "j1" else "j2"
    first.label(item, annotator, other)
    second.withdraw(item, annotator)
    second.label(item, annotator, other)
    assert sorted(said(first.evidence().annotations)) == sorted(said(second.evidence().annotations))
    assert (item, annotator, other) in said(first.evidence().annotations)
    np.testing.assert_allclose(first.consensus().probabilities, second.consensus().probabilities, atol=1e-3)


def test_what_nobody_knew_yet_joins_with_its_first_label() -> None:
    live = follow(VBIBCC(), plain())
    for annotator in ("k0", "k1", "k2", "k3"):
        live.label("brand new", annotator, "j2")
    assert live.belief("brand new").argmax() == 2
    live.label("n0", "newcomer", "j0")
    now = live.consensus()
    assert now.items[-1] == "brand new"
    assert now.annotators.names[-1] == "newcomer"
    assert now.annotators.labels[-1] == 1


@pytest.mark.parametrize("method", [DawidSkene(), DawidSkene(accuracy=0.75), VBIBCC()])
def test_a_project_may_begin_with_nothing(method: Any) -> None:
    """Even beliefs about people who have no labels yet would teach nothing about them, for ever."""
    full, _ = oracles.crowd(np.random.default_rng(44), 60, 6, 3, accuracy=(0.75, 0.95))
    nothing = Evidence(full.annotations.select(np.zeros(len(full.annotations), bool)))
    live = follow(method, nothing)
    for item, annotator, label in said(full.annotations):
        live.label(item, annotator, label)
    assert sorted(said(live.evidence().annotations)) == sorted(said(full.annotations))
    refit = method.fit(Evidence(full.annotations)).labels
    assert np.sum(live.snapshot().labels != refit) <= 1
    assert np.sum(live.consensus().labels != refit) <= 1


def test_an_item_that_strangers_alone_have_labeled_begins_with_their_votes() -> None:
    live = follow(DawidSkene(), plain())
    for stranger in ("s1", "s2", "s3"):
        live.label("new", stranger, "j1" if stranger != "s2" else "j0")
    assert live.belief("new").argmax() == 1


@pytest.mark.parametrize("method", [DawidSkene(), PLEM()])
def test_many_changes_at_once_are_those_changes(method: Any) -> None:
    evidence = of_use(method, some_crowd(42, known=0.0))
    table = said(evidence.annotations)
    live, single = follow(method, evidence), follow(method, evidence)
    named = [row for row in table if row[1] is not None]
    gone = [named[3], named[7], next(row for row in table if row[1] is None)]
    annotations = Annotations.from_frame(
        rows(
            (named[3][0], named[3][1], "j2"),
            (named[11][0], named[11][1], "j0"),
            ("new", "k9", "j1"),
            ("n4", None, "j1"),
        ),
        items=["n0", "n4", named[3][0], named[11][0], "new", "nobody's"],
        classes=["j0", "j1", "j2"],
    )
    given = Evidence(annotations, truth=[2, -1, -1, -1, -1, -1])
    withdrawn = Annotations.from_frame(
        rows(*gone), classes=list(annotations.classes), options=list(live.labels.options)
    )
    live.change(given, withdrawn)
    for item, annotator, label in gone:
        single.withdraw(item, annotator or ANONYMOUS, label)
    for item, annotator, label in said(annotations):
        single.label(item, annotator or ANONYMOUS, label)
    now = live.evidence()
    assert sorted(map(repr, said(now.annotations))) == sorted(map(repr, said(single.evidence().annotations)))
    assert now.annotations.items[-2:] == ("new", "nobody's")
    assert now.truth[0] == 2
    assert live.belief("n0").tolist() == [0, 0, 1]
    assert_sums_are_exact(live)
    np.testing.assert_allclose(live.belief("nobody's").sum(), 1)
    live.change(Evidence(annotations))  # nothing new is known
    assert live.evidence().truth[0] == 2


def test_models_speak_of_new_items_and_anew_of_old_ones() -> None:
    evidence = some_crowd(43, known=0.0)
    live = follow(PLEM(), evidence)
    annotations = Annotations.from_frame(
        rows(("n0", "k0", "j0")), items=["n0", "n28", "new"], classes=["j0", "j1", "j2"], options=live.labels.options
    )
    spoken = {"m0": [[0.98, 0.01, 0.01], [0.1, 0.1, 0.8], [0.05, 0.9, 0.05]], "m1": np.full((3, 3), np.nan)}
    live.change(Evidence(annotations, spoken))
    assert live.belief("new").argmax() == 1
    now = live.evidence()
    np.testing.assert_allclose(now.probabilities["m0"][[0, 28, 30]], spoken["m0"])
    assert np.isnan(now.probabilities["m1"][30]).all()
    models = live.prior.pool
    shares, correlation = models.shares.share_j, models.correlation_mm
    expected = oracles.pool(now, models.temperatures, shares, correlation=correlation)
    np.testing.assert_allclose(live.prior.log_items()[[0, 28, 30]], expected[[0, 28, 30]], atol=1e-9)
    assert live.consensus().labels[-1] == 1
    live.label("of which models are abstaining", "k0", "j2")
    raised_j = live.prior.pool.shares.share_j * np.exp(live.log_pi_klj[0, 2])
    np.testing.assert_allclose(live.belief("of which models are abstaining"), raised_j / raised_j.sum(), atol=0.01)
    with pytest.raises(BadEvidence, match="other: had no part in the fit"):
        live.change(Evidence(annotations, {"other": spoken["m0"]}))


def wrong_changes() -> Iterator[tuple[str, Any, type[Exception]]]:
    other = Annotations.from_frame(rows(("n0", "k0", "j9")), classes=["j0", "j9"])
    unsure = Annotations.from_frame(
        rows(("n0", "k0", "perhaps")), classes=["j0", "j1", "j2"], options=["j0", "j1", "j2", "perhaps"]
    )
    stranger = Annotations.from_frame(rows(("n0", "who", "j1")), classes=["j0", "j1", "j2"])
    yield "have the classes", lambda live: live.change(Evidence(other)), BadEvidence
    yield "'perhaps' is not one of the options", lambda live: live.change(Evidence(unsure)), BadAnnotations
    yield "'who' has no such label", lambda live: live.change(None, stranger), BadEvidence
    yield "'perhaps' is not one of", lambda live: live.label("n0", "k0", "perhaps"), BadAnnotations
    yield "not of the same type", lambda live: live.label(7, "k0", "j0"), BadAnnotations
    yield "has no such label", lambda live: live.withdraw("n29", "k0"), BadEvidence
    yield "'nowhere' is not among the 30 items", lambda live: live.belief("nowhere"), BadEvidence


@pytest.mark.parametrize(("message", "change", "error"), list(wrong_changes()))
def test_what_cannot_be_taken_in_is_an_error_and_changes_nothing(
    message: str, change: Any, error: type[Exception]
) -> None:
    live = follow(DawidSkene(), plain())
    before = live.snapshot().to_bytes(), said(live.evidence().annotations)
    with pytest.raises(error, match=message):
        change(live)
    assert (live.snapshot().to_bytes(), said(live.evidence().annotations)) == before


def test_of_the_anonymous_pool_one_label_at_a_time_is_withdrawn() -> None:
    table = rows(("a", None, "x"), ("a", None, "x"), ("a", None, "y"), ("b", "ann", "y"), ("b", "bob", "x"))
    live = follow(VBIBCC(), Evidence(Annotations.from_frame(table)))
    with pytest.raises(BadEvidence, match="which label"):
        live.withdraw("a", ANONYMOUS)
    live.withdraw("a", ANONYMOUS, "x")
    assert sorted(row[2] for row in said(live.evidence().annotations) if row[0] == "a") == ["x", "y"]
    twice = Annotations.from_frame(rows(("a", None, "x"), ("a", None, "x"), ("b", "ann", "y")))
    with pytest.raises(BadEvidence, match="no such label"):
        live.change(None, twice)
    live.label("a", ANONYMOUS, "y")
    assert sorted(row[2] for row in said(live.evidence().annotations) if row[0] == "a") == ["x", "y", "y"]


# -- who is concerned ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DawidSkene(), VBIBCC()])
def test_a_changed_item_is_first_judged_by_the_chances_its_labels_have_without_it(
    method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = follow(method, plain())
    judge, seen = IncrementalEM.judge, []
    monkeypatch.setattr(
        IncrementalEM, "judge", lambda self, n: (seen.append(self.log_pi_klj[2].copy()), judge(self, n))[1]
    )
    others_nj = live.q_nj * (np.arange(30) != 5)[:, None]
    live.label("n5", "k2", "j1")
    raised_jl = oracles.counts(live.evidence().annotations, others_nj)[2] + live.rule.pseudo_jl
    raised_jl += 0 if live.rule.variational else 1
    np.testing.assert_allclose(seen[0].T, np.log(raised_jl / raised_jl.sum(axis=1, keepdims=True)), atol=1e-9)


def test_those_who_gave_a_label_and_who_took_one_back_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "TURNS", 0)
    live = follow(DawidSkene(), plain())
    estimated: list[int] = []
    estimate = IncrementalEM.estimate
    monkeypatch.setattr(IncrementalEM, "estimate", lambda self, k: (estimated.extend(k), estimate(self, k))[1])
    item, annotator, _ = said(plain().annotations)[0]
    of_item = {row[1] for row in said(plain().annotations) if row[0] == item}
    live.withdraw(item, annotator)
    assert {f"k{k}" for k in estimated} == of_item
    live.label(item, annotator, "j0")
    assert {f"k{k}" for k in estimated} == of_item
