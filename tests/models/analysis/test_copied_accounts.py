"""Copied accounts: who is found, who is not, and what they count."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from scipy.stats import chi2

import hitl
from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models import VBIBCC, MajorityVote
from hitl.models.analysis.copied_accounts import LEAST, PSEUDO_LABELS, copied_accounts, count_copies_once
from hitl.models.combine import fit
from tests.bench.honesty.copies import CROWDS, HONEST, Kind, alarm, planted, with_copies

SMALL = Kind(3, (0.5, 0.8), items=300, people=8, labels=6)


def small(pairs: int = 2, seed: int = 0) -> Annotations:
    """A crowd with copies, some of whose answers are an option that is no class."""
    rng = np.random.default_rng(seed)
    annotations = SMALL.draw(rng).annotations
    label = np.where(rng.random(len(annotations)) < 0.1, 3, annotations.label)
    options = (*annotations.classes, 9)
    return with_copies(Evidence(replace(annotations, label=label, options=options)), rng, pairs, 120).annotations


def matrix(annotations: Annotations) -> npt.NDArray[np.intp]:
    table = np.full((annotations.n_items, annotations.n_annotators), -1)
    table[annotations.item, annotations.annotator] = annotations.label
    return table


# -- the test, by another way ------------------------------------------------------------------------------


def oracle(annotations: Annotations, close: list[tuple[int, int]]) -> dict[tuple[int, int], tuple[float, float]]:
    """Pair -> share of copied answers and p-value, label by label and by a general optimizer.

    `close`: pairs of accounts as close as copies, each of which is in one pair at most.
    """
    said = matrix(annotations)
    labels = (said >= 0).sum(axis=0)
    once = said.copy()
    for a, b in close:
        later = a if labels[b] > labels[a] else b
        once[(said[:, a] >= 0) & (said[:, b] >= 0), later] = -1
    item, annotator = np.nonzero(once >= 0)
    codes = (code.astype(np.int32) for code in (item, annotator, once[item, annotator]))
    names = annotations.items, annotations.annotators, annotations.classes, annotations.options
    known = VBIBCC().fit(Evidence(Annotations(*codes, *names)))
    crowd = np.ones((annotations.n_classes, annotations.n_options))
    for n, k in zip(item, annotator, strict=True):
        crowd[:, once[n, k]] += known.probabilities[n]
    crowd /= crowd.sum(axis=1, keepdims=True)
    twin = dict(close) | {b: a for a, b in close}

    def best(a: int, b: int, copied: float | None) -> tuple[float, float]:
        away = {a, b, twin.get(a), twin.get(b)}
        pairs = []
        for n in np.flatnonzero((said[:, a] >= 0) & (said[:, b] >= 0)):
            q = known.class_shares.copy()
            for k in range(said.shape[1]):
                if once[n, k] >= 0 and k not in away:
                    q *= known.annotators.confusion[k, :, once[n, k]]
            pairs.append((q / q.sum(), said[n, a], said[n, b]))
        q, x, y = (np.array(column) for column in zip(*pairs, strict=True))

        def loss(theta: Floats) -> float:
            share = expit(theta[-1]) if copied is None else copied
            pi = softmax(theta[:-1].reshape(crowd.shape), axis=1)
            chance = q * pi[:, x].T * (share * (x == y)[:, None] + (1 - share) * pi[:, y].T)
            return -float(np.log(chance.sum(axis=1)).sum() + PSEUDO_LABELS * (crowd * np.log(pi)).sum())

        found = minimize(loss, np.append(np.log(crowd), 0.0), method="L-BFGS-B", options={"maxiter": 300})
        return float(expit(found.x[-1])), -float(found.fun)

    shares = {(a, b): best(a, b, None) for a, b in combinations(range(said.shape[1]), 2)}
    level = 1 - 0.25 * max(1.0, 3 * said.shape[1] / len(shares))
    null = LEAST + (1 - LEAST) * float(np.quantile([share for share, _ in shares.values()], level))
    return {
        pair: (share, chi2.sf(2 * (log_p - best(*pair, null)[1]), 1) / 2)
        for pair, (share, log_p) in shares.items()
        if share > null
    }


def test_shares_and_p_values_are_those_of_an_oracle() -> None:
    annotations = small()
    pairs = copied_accounts(annotations).pairs
    assert len(pairs) == 2
    expected = oracle(annotations, [(pair.original, pair.copy) for pair in pairs])
    for pair in pairs:
        share, p_value = expected[min(pair.copy, pair.original), max(pair.copy, pair.original)]
        assert pair.copied == pytest.approx(share, abs=0.01)
        assert np.log(pair.p_value) == pytest.approx(np.log(p_value), rel=0.03)
        both = matrix(annotations)[:, [pair.copy, pair.original]]
        both = both[(both >= 0).all(axis=1)]
        assert (pair.shared, pair.agreed) == (len(both), (both[:, 0] == both[:, 1]).sum())


# -- who is found ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CROWDS)
def test_planted_pairs_are_found_and_no_others(name: str) -> None:
    assert planted(CROWDS[name], 0) == (6, 0)


@pytest.mark.parametrize("name", HONEST)
def test_honest_people_are_not_reported(name: str) -> None:
    """They agree where all are misled, where all overlook a class, or because they are nearly always right."""
    assert [alarm(HONEST[name], seed) for seed in range(2)] == [0, 0]


def test_three_accounts_of_one_person_are_one_group() -> None:
    rng = np.random.default_rng(0)
    crowd = Kind(4, (0.45, 0.85)).draw(rng).annotations
    most = int(crowd.labels_per_annotator.argmax())
    codes = np.stack((crowd.item, crowd.annotator, crowd.label))
    mine = codes[:, crowd.annotator == most]
    others = [np.stack((mine[0], np.full(mine.shape[1], k), mine[2])) for k in (20, 21)]
    item, annotator, label = np.concatenate((codes, *others), axis=1)
    people = (*crowd.annotators, "second", "third")
    annotations = replace(crowd, item=item, annotator=annotator, label=label, annotators=people)
    found = copied_accounts(annotations)
    assert len(found.pairs) == 3
    assert found.others(most).tolist() == [20, 21]
    assert found.others(20).tolist() == sorted([most, 21])
    assert {len(found.others(k)) for k in range(20) if k != most} == {0}
    once = found.once(annotations)
    assert np.isin(once.annotator, [most, 20, 21]).sum() == mine.shape[1]


def test_copies_are_found_where_only_they_share_items() -> None:
    """In a large crowd few pairs share many items, so copies must not be compared with themselves."""
    rng = np.random.default_rng(0)
    crowd = with_copies(Kind(4, (0.45, 0.85), items=4000, people=250).draw(rng), rng, shared=60)
    assert len(copied_accounts(crowd.annotations).pairs) == 6


def test_two_people_who_always_agree_are_not_reported() -> None:
    same = np.tile(np.random.default_rng(0).integers(2, size=(200, 1)), (1, 4))
    for people in (2, 3, 4):
        assert copied_accounts(Annotations.from_matrix(same[:, :people])).pairs == ()


def test_annotators_without_ids_are_many_people() -> None:
    named = small()
    rows = np.append(np.arange(len(named)), np.flatnonzero(named.annotator == 0))  # they may label an item twice
    codes = {name: getattr(named, name)[rows] for name in ("item", "annotator", "label")}
    annotations = replace(named, **codes, anonymous=0)
    found = copied_accounts(annotations)
    assert len(found.pairs) > 0
    assert 0 not in {code for pair in found.pairs for code in (pair.copy, pair.original)}
    assert (found.once(annotations).annotator == 0).sum() == (annotations.annotator == 0).sum()


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_teams_with_a_rule_of_their_own_are_not_copies(seed: int) -> None:
    """Each of two teams answers three items in ten by its own rule. Pairs within a team are ordinary pairs here."""
    rng = np.random.default_rng(seed)
    truth, unclear = rng.integers(3, size=500), rng.random(500) < 0.3
    item = np.repeat(np.arange(500), 8)
    annotator = np.argsort(rng.random((500, 16)), axis=1)[:, :8].ravel()
    by_rule = (truth[item] + unclear[item] * (annotator % 2)) % 3
    slips = rng.random(len(item)) > 0.9
    label = np.where(slips, (by_rule + rng.integers(1, 3, size=len(item))) % 3, by_rule)
    classes = (0, 1, 2)
    assert copied_accounts(Annotations(item, annotator, label, range(500), range(16), classes, classes)).pairs == ()


def test_the_later_account_is_the_copy() -> None:
    annotations = small()
    original = {pair.original for pair in copied_accounts(annotations).pairs}
    late = np.isin(annotations.annotator, list(original)).astype(float)
    timed = replace(annotations, time=1e9 + 100 * late)
    assert {pair.copy for pair in copied_accounts(timed).pairs} == original


# -- what they count ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [VBIBCC(), MajorityVote()])
def test_a_group_counts_as_one(method: VBIBCC | MajorityVote) -> None:
    """On items that the original has answered, the copy counts nothing; alone it counts; reports count all labels."""
    annotations = small()
    said = matrix(annotations)
    for pair in copied_accounts(annotations).pairs:
        said[(said[:, pair.copy] >= 0) & (said[:, pair.original] >= 0), pair.copy] = -1
    item, annotator = np.nonzero(said >= 0)
    names = annotations.items, annotations.annotators, annotations.classes, annotations.options
    expected = method.fit(Evidence(Annotations(item, annotator, said[item, annotator], *names)))
    found = fit(method, Evidence(annotations))
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-9)
    assert found.annotators.labels.tolist() == annotations.labels_per_annotator.tolist()
    assert found.annotators.labels.sum() > expected.annotators.labels.sum()
    by_table = hitl.combine(
        annotations.table(), method=method, classes=annotations.classes, options=annotations.options
    )
    np.testing.assert_allclose(by_table.probabilities, expected.probabilities, atol=1e-6)


def test_labels_in_a_sequence_all_count() -> None:
    annotations = small()
    place = np.column_stack((np.arange(annotations.n_items) // 10, np.arange(annotations.n_items) % 10))
    evidence = Evidence(annotations, sequence=place)
    assert count_copies_once(evidence) is evidence
    assert len(count_copies_once(Evidence(annotations)).annotations) < len(annotations)
