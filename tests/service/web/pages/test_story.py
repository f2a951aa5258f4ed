"""Why an item has its label: the weights of answers, and how many more would turn it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hitl.models import OneCoin
from hitl.service.web.pages.items import story_of
from hitl.service.web.snapshot import Snapshot
from tests.service.web.pages import crowds
from tests.service.web.pages.crowds import snapshot
from tests.service.web.served import Served


@given(crowds.crowds("dawid-skene"), st.integers(0, 7))
def test_weights_are_likelihood_ratios_of_what_was_said(known: Snapshot, n: int) -> None:
    """By the names that a reader sees, from the matrices as they are reported."""
    view = known.view(None)
    n %= len(known.keys)
    story, report = story_of(view, n), view.consensus.annotators
    matrix = {
        str(who): {
            (str(true), str(said)): float(report.confusion[k, j, option])
            for j, true in enumerate(report.classes)
            for option, said in enumerate(report.options)
        }
        for k, who in enumerate(report.names)
    }
    for row in story.answers:
        chance = matrix[row["annotator"]]
        ratio = chance[story.label, row["said"]] / chance[str(story.other), row["said"]]
        assert math.exp(row["weight"]) == pytest.approx(ratio, rel=1e-9)
    weights = [abs(row["weight"]) for row in story.answers]
    assert weights == sorted(weights, reverse=True)


@given(crowds.crowds("dawid-skene"), st.integers(0, 7))
def test_class_shares_and_weights_are_the_whole_belief_of_dawid_and_skene(known: Snapshot, n: int) -> None:
    """ln q[label] - ln q[other] = ln share[label] - ln share[other] + the weights, where nothing is tempered."""
    view = known.view(None)
    n %= len(known.keys)
    assume(view.truth[n] < 0)
    story, consensus = story_of(view, n), view.consensus
    # A label that nothing can be compared with is a vote, and counted as one.
    assume((view.evidence.annotations.labels_per_item[view.truth < 0] != 1).all())
    belief = dict(story.beliefs)
    share = dict(zip(map(str, consensus.classes), consensus.class_shares.tolist(), strict=True))
    assume(consensus.fit.converged and min(belief[story.label], belief[str(story.other)]) > 1e-6)
    told = math.log(share[story.label] / share[str(story.other)]) + sum(row["weight"] for row in story.answers)
    assert told == pytest.approx(math.log(belief[story.label] / belief[str(story.other)]), abs=0.02)


@given(crowds.crowds("dawid-skene"), st.integers(0, 7))
def test_beliefs_begin_with_the_label_and_the_second_best(known: Snapshot, n: int) -> None:
    view = known.view(None)
    n %= len(known.keys)
    story = story_of(view, n)
    assert story.beliefs[0][0] == story.label
    assert story.beliefs[1][0] == story.other
    assert sum(p for _, p in story.beliefs) == pytest.approx(1.0)
    assert [p for _, p in story.beliefs[1:]] == sorted((p for _, p in story.beliefs[1:]), reverse=True)


@given(crowds.crowds("dawid-skene"), st.integers(0, 7))
def test_so_many_answers_turn_the_label_and_one_less_does_not(known: Snapshot, n: int) -> None:
    """By Bayes' rule, answer after answer, with the mean of the confusion matrices weighted by labels."""
    view = known.view(None)
    n %= len(known.keys)
    story, consensus = story_of(view, n), view.consensus
    assume(story.typical is not None and story.typical < 200)
    report = consensus.annotators
    typical = (
        sum(matrix * labels for matrix, labels in zip(report.confusion, report.labels, strict=True))
        / report.labels.sum()
    )
    label, other = list(consensus.classes).index(story.label), list(consensus.classes).index(story.other)
    belief = consensus.probabilities[n].copy()
    turned = 0
    while belief[label] >= belief[other]:
        belief = belief * typical[:, other]
        belief /= belief.sum()
        turned += 1
    assert turned == story.typical or (turned == 0 and story.typical == 1)


@pytest.mark.parametrize("method", ["majority", "one-coin"])
def test_a_refit_with_so_many_more_answers_turns_the_label(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New annotators of whom nothing else is known give the answer; a refit needs 1 less to 4 more than is told.

    It takes more where the refit knows less of the new ones than that they are typical. Of 120 items of crowds that are
    right 65 % to 95 % of the time half are within one.
    """
    monkeypatch.setitem(crowds.METHODS, "one-coin", OneCoin())
    rng = np.random.default_rng(0)
    apart = []
    for _ in range(30):
        right = rng.uniform(0.65, 0.95, 6)
        labels = [
            [int(truth ^ (rng.random() > right[k])) if rng.random() < 0.7 else -1 for k in range(6)]
            for truth in rng.integers(0, 2, 40).tolist()
        ]
        view = snapshot(labels, method=method).view(None)
        n = int(rng.integers(40))
        story = story_of(view, n)
        if story.typical is None:
            continue
        other = view.consensus.classes.index(story.other)
        needed = next(more for more in range(1, 20) if turned(labels, n, other, more, method))
        apart.append(needed - story.typical)
    assert len(apart) >= 25
    assert min(apart) >= -1
    assert max(apart) <= 4
    assert np.mean(np.abs(apart) <= 1) >= 0.5


def turned(labels: list[list[int]], n: int, other: int, more: int, method: str) -> bool:
    """Whether the item has the label `other` after so many more answers."""
    wider = [row + [-1] * more for row in labels]
    wider[n] = labels[n] + [other] * more
    return int(snapshot(wider, method=method).view(None).consensus.codes[n]) == other


def test_the_page_says_it(served: Served) -> None:
    told = served.json("/projects/p/items/item%203")
    assert told["beliefs"][0]["label"] == told["item"]["label"]
    assert told["beliefs"][0]["probability"] == pytest.approx(told["item"]["confidence"])
    page = served.html("/projects/p/items/item%203")
    assert f"{told['answers_that_turn_it']} more answer" in page
    assert "Gold item: the right answer is cat" in served.html("/projects/p/items/item%204")
    assert "Nobody has answered yet" in served.html("/projects/p/items/item%2011")
