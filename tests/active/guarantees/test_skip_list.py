"""Items that need no annotator: surest first, in an order that no ground truth has touched, or why there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active.guarantees import skip_list
from hitl.active.guarantees.skip_list import ReplayedSkips, SkipList, make_skip_list, replayed
from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner

N = 600


def evidence_and_truth(right: float = 0.97) -> tuple[Evidence, Ints]:
    """600 items, two annotators, and a model that is right in this share of the items, and silent on every tenth."""
    rng = np.random.default_rng(2)
    truth = rng.integers(2, size=N).astype(np.int32)
    said = np.where(rng.random((N, 2)) < 0.8, truth[:, None], 1 - truth[:, None])
    model = np.where(rng.random(N) < right, truth, 1 - truth)
    p_nj = np.where(np.eye(2)[model] > 0, 0.9, 0.1) + rng.uniform(-0.09, 0.09, N)[:, None] * [1, -1]
    p_nj[::10] = np.nan
    return Evidence(Annotations.from_matrix(said, classes=["no", "yes"]), {"net": p_nj}), truth


def known(truth: Ints, number: int) -> Ints:
    """The truth of so many random items."""
    chosen = np.random.default_rng(3).permutation(N)[:number]
    return np.where(np.isin(np.arange(N), chosen), truth, -1).astype(np.int32)


def listed(evidence: Evidence, truth: Ints | None = None, error: float = 0.05) -> SkipList:
    return make_skip_list(evidence, DefaultCombiner().fit(evidence), truth=truth, error=error)


def test_predicted_items_are_listed_surest_first_and_gold_items_as_they_are() -> None:
    evidence, truth = evidence_and_truth()
    gold = known(truth, 300)
    found = listed(replace(evidence, truth=gold))
    assert (found.predicted, found.gold) == (540, int((gold >= 0)[evidence.predicted].sum()))
    assert found.items == len(found.labels) > 200
    assert (found.share, found.bound) == (found.items / 540, 27)
    assert "At most 27 of the models' labels on them are wrong (95 % confidence). At least 95 % of" in found.statement
    assert (found.labels.confidence.diff().dropna() <= 0).all()
    rows = found.labels.item.to_numpy(int)
    assert evidence.predicted[rows].all()
    right = found.labels.label.to_numpy() == np.array(["no", "yes"])[truth[rows]]
    assert right[gold[rows] >= 0].all()
    assert (~right).sum() <= 0.05 * 540
    model_wrong = evidence.probabilities["net"][rows].argmax(axis=1) != truth[rows]
    assert found.wrong == (model_wrong & (gold[rows] >= 0)).sum() > 0


def test_ground_truth_has_no_part_in_the_order() -> None:
    """Otherwise gold items would not stand for all others, and the promise would not hold."""
    evidence, truth = evidence_and_truth()
    gold = known(truth, 400)
    listings = [listed(replace(evidence, truth=np.where(gold >= 0, code, -1))) for code in (gold, 1 - gold)]
    held_out = listed(evidence, gold)
    assert held_out.labels.equals(listings[0].labels)
    assert 0 < listings[1].items < listings[0].items
    assert (listings[1].labels.item == listings[0].labels.item[: listings[1].items]).all()
    confidence = skip_list.by_models_alone(evidence, DefaultCombiner().fit(evidence)).max(axis=1)
    assert listings[0].labels.confidence.to_numpy() == pytest.approx(confidence[listings[0].labels.item.to_numpy(int)])


def test_held_out_truth_and_that_of_the_evidence_count() -> None:
    evidence, truth = evidence_and_truth()
    gold = known(truth, 300)
    first = np.where(np.arange(N) % 2 == 0, gold, -1).astype(np.int32)
    rest = np.where(np.arange(N) % 2 == 1, gold, -1).astype(np.int32)
    both, whole = listed(replace(evidence, truth=first), rest), listed(replace(evidence, truth=gold))
    assert (both.items, both.gold, both.wrong) == (whole.items, whole.gold, whole.wrong)


def test_it_says_why_there_are_none() -> None:
    evidence, truth = evidence_and_truth()
    none, few = listed(evidence), listed(evidence, known(truth, 20))
    assert (none.items, none.gold, few.items) == (0, 0, 0)
    for found in (none, few):
        assert found.statement == (
            "Can't tell yet: to be sure that at least 95 % of all 540 labels are right (95 % confidence), it takes "
            f"about {found.gold_needed} gold items drawn at random from all items. There are {found.gold}."
        )
    more = listed(evidence, known(truth, none.gold_needed * 2))
    assert more.items > 0
    gold = known(1 - truth, 500)
    gold[more.labels.item[0]] = 1 - truth[more.labels.item[0]]
    wrong = listed(evidence, gold, error=0.002)
    assert (wrong.items, wrong.gold >= wrong.gold_needed) == (0, True)
    assert wrong.statement.startswith("None: where the models are surest, they are too often wrong for 99.8 % of all")


def test_without_predictions_none_are_listed() -> None:
    evidence, truth = evidence_and_truth()
    silent = replace(evidence, probabilities={"net": np.full((N, 2), np.nan)})
    assert listed(silent, known(truth, 300)).statement == "None: no item has a prediction."


def replay_of(gold: int, right: float, confidence: float = 0.95) -> ReplayedSkips:
    evidence, truth = evidence_and_truth(right)
    consensus = DefaultCombiner().fit(evidence)
    return replayed(replace(evidence, truth=truth), consensus, gold, error=0.05, confidence=confidence)


def test_errors_that_gold_items_show_are_corrected_in_a_replay() -> None:
    found = replay_of(539, right=0.7)
    assert (found.labels, found.false) == (540, 0)
    assert found.items[0] > 200


def test_a_replay_counts_the_promises_that_are_false() -> None:
    careful, rash = replay_of(100, right=0.9), replay_of(100, right=0.9, confidence=0.05)
    assert careful.false <= 9  # 5 % may be, and two standard errors more
    assert rash.false > 86  # 95 % may be, less two standard errors and what is discrete
    assert careful.items[1] < rash.items[1]
