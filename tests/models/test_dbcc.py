"""DBCC: conditionals and the whole posterior against enumeration; people who copy; networks too large to be exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.dbcc import DBCC
from hitl.models.sampling import network_chain, network_groups, network_posterior
from hitl.models.vb_ibcc import VBIBCC
from tests import network_oracles
from tests.network_models import (
    FOUR,
    Model,
    accuracies,
    assert_clearly_better,
    check_posterior,
    check_truths,
    copied,
    some_crowd,
)

# -- conditionals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact_states", [4096, 0], ids=["one network", "cut"])
@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_the_class_of_an_item_is_drawn_from_its_enumerated_chances(shape: dict[str, Any], exact_states: int) -> None:
    model = Model(some_crowd(1, **shape), exact_states=exact_states, seed=1)
    check_truths(model)


def test_the_log_likelihood_is_that_of_all_items() -> None:
    model = Model(some_crowd(3, n_items=12, known=0.3, pool=6), seed=3)
    total = 0.0
    for n in range(12):
        hard, _ = network_oracles.item_likelihood(model.evidence, n, model.groups, model.drawn)
        chance = hard[0] * np.exp(model.state.log_share_j)
        known = model.evidence.truth[n]
        total += np.log(chance.sum() if known < 0 else chance[known])
    found = network_chain.draw_truths(np.random.default_rng(0), model.layout.items, 1.0, model.state)
    assert found == pytest.approx(total, abs=1e-9)


def test_answers_not_given_are_drawn_from_the_network() -> None:
    """Pattern by pattern: complete answers agree with those given, and have their enumerated frequencies."""
    model = Model(some_crowd(4, n_items=20, asked=0.5), seed=4)
    assert model.groups == [[0, 1, 2]]
    state, patterns, rng = model.state, model.layout.patterns, np.random.default_rng(5)
    answers = network_oracles.answers(3, 2)
    gaps = 0
    for n, i in enumerate(model.layout.distinct_n):
        pattern = model.layout.items.pattern[model.layout.items.start[i]] if i >= 0 else -1
        rows = np.flatnonzero(model.evidence.annotations.item == n)
        given = dict(
            zip(model.evidence.annotations.annotator[rows], model.evidence.annotations.label[rows], strict=True)
        )
        agree = [t for t, answer in enumerate(answers) if all(answer[k] == label for k, label in given.items())]
        if pattern < 0 or len(agree) == 1:
            continue
        gaps += 1
        state.seen_suj[:] = 0
        state.seen_suj[0, pattern] = 2000, 1000
        network_chain.complete(rng, model.layout.networks, patterns, state)
        counts = state.counts.reshape(2, 8)
        np.testing.assert_array_equal(counts.sum(axis=1), [2000, 1000])
        np.testing.assert_array_equal(counts[:, agree].sum(axis=1), [2000, 1000])
        chance = model.drawn.tables[0][0][:, agree]
        np.testing.assert_allclose(
            counts[:, agree] / [[2000], [1000]], chance / chance.sum(axis=1, keepdims=True), atol=0.06
        )
    assert gaps > 5


def test_class_shares_are_drawn_from_their_dirichlet() -> None:
    items_sj, log_share = np.array([[3.0, 0.0, 5.0], [1.0, 0.0, 0.0]]), np.empty(3)
    rng, drawn = np.random.default_rng(6), []
    for _ in range(4000):
        network_chain.draw_shares(rng, 0.5, items_sj, log_share)
        drawn.append(np.exp(log_share))
    alpha = np.array([4.5, 0.5, 5.5])
    np.testing.assert_allclose(np.mean(drawn, axis=0), alpha / alpha.sum(), atol=0.01)
    variance = alpha * (alpha.sum() - alpha) / alpha.sum() ** 2 / (alpha.sum() + 1)
    np.testing.assert_allclose(np.var(drawn, axis=0), variance, rtol=0.1)


@pytest.mark.parametrize("hard", [1.0, 0.4], ids=["all hard", "some easy"])
def test_what_is_kept_of_a_draw_is_what_the_enumerated_networks_imply(hard: float) -> None:
    model = Model(some_crowd(7, n_annotators=4, n_options=3, pool=5), hard=hard, exact_states=30, seed=7)
    state, count = model.state, len(model.layout.member)
    network_chain.draw_truths(np.random.default_rng(8), model.layout.items, hard, state)
    sums = network_chain.blank_sums(model.layout, 2, 1, 1)
    weight_am = np.stack((np.full(count, 1 / count), np.eye(count)[1]))
    network_chain.keep_parameters(model.layout.networks, hard, state, weight_am, sums, 0)
    part = (state.items_sj[0] + hard) / (state.items_sj.sum(axis=0) + 1)
    drawn = model.drawn
    pi = network_oracles.mixed_confusions(model.groups, 3, drawn, part[None])
    member = model.layout.member
    np.testing.assert_allclose(sums.moment_rmjl[0], pi[0, member], atol=1e-12)
    np.testing.assert_allclose(sums.moment_rmjl[1], pi[0, member] ** 2, atol=1e-12)
    expected = network_oracles.right_correlation(np.ones(1), model.groups, 3, drawn, part[None], pi)
    found = network_posterior.dependence(model.layout, [sums])
    np.testing.assert_allclose(found, expected[np.ix_(member, member)], atol=1e-12)
    right = np.array([[pi[0, k, j, j] for j in range(2)] for k in member]) @ drawn.share_dj[0]
    np.testing.assert_allclose(sums.accuracy_ad[:, 0], [right.mean(), right[1]], atol=1e-12)
    np.testing.assert_allclose(sums.coupling_pd[:, 0], np.concatenate([w[0] for w in drawn.coupling_dp]))


# -- the whole ---------------------------------------------------------------------------------------------------


SMALL = DBCC(accuracy=0.7, answer_sd=1.2, coupling_sd=1.5, share_smoothing=0.8, burn_in=200, draws=6000, thin=1)


@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_the_fit_is_the_exact_posterior_of_four_items(shape: dict[str, Any]) -> None:
    """By weighing 150,000 draws from the prior with the enumerated likelihood."""
    evidence = some_crowd(9, n_items=4, **shape)
    check_posterior(evidence, SMALL, 1.0, (1.2, 1.5, 1.0))


def test_people_of_several_networks_are_reported_in_their_own_order() -> None:
    annotations = some_crowd(20, n_items=5, n_annotators=4, asked=1.0).annotations
    apart = (annotations.item < 3) == np.isin(annotations.annotator, [0, 2])
    evidence = Evidence(annotations.select(apart))
    assert [group.tolist() for group in network_groups.groups(evidence, 4096, 0)[0]] == [[0, 2], [1, 3]]
    check_posterior(evidence, SMALL, 1.0, (1.2, 1.5, 1.0))
    mixing = SMALL.fit(evidence).fit.mixing
    assert mixing is not None
    assert {name for name in mixing.rhat if "coupling" in name} == {"coupling of k0 and k2", "coupling of k1 and k3"}


# -- people who copy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_thirty_known_items_it_sees_through_copies_that_fool_ibcc(n_classes: int) -> None:
    found = accuracies(DBCC(draws=300, thin=1), n_classes, known=30)
    for combiner in (DawidSkene(), VBIBCC(), VBIBCC(shared=False)):
        assert_clearly_better(found, accuracies(combiner, n_classes, known=30))


def test_dependence_is_the_correlation_of_errors() -> None:
    evidence, truth = copied(0, 3, known=60)
    people = DBCC(draws=300, thin=1).fit(evidence).annotators
    a = evidence.annotations
    wrong = (a.label.reshape(600, 6) != truth[:, None]).astype(float)
    assert people.dependence is not None
    expected = np.corrcoef(wrong.T)
    np.testing.assert_allclose(people.dependence[:3, :3], expected[:3, :3], atol=0.06)
    assert np.abs(people.dependence[:3, 3:]).max() < 0.25
    np.testing.assert_array_equal(np.diag(people.dependence), 1)
    np.testing.assert_allclose(people.dependence, people.dependence.T)
    np.testing.assert_allclose(people.accuracy, 1 - wrong.mean(axis=0), atol=0.06)
