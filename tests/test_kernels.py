"""The hot loops against plain loops, and each serial loop against its threaded twin."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from hitl.annotations import Annotations
from hitl.models import kernels
from tests import oracles

SHAPES = {
    "square": {"n_items": 30, "n_annotators": 5, "n_classes": 3},
    "more options than classes": {"n_items": 30, "n_annotators": 5, "n_classes": 2, "n_options": 5},
    "items without labels": {"n_items": 30, "n_annotators": 5, "n_classes": 3, "unlabeled": 7},
    "sparse": {"n_items": 40, "n_annotators": 6, "n_classes": 4, "asked": 0.1},
    "an anonymous pool": {"n_items": 20, "n_annotators": 3, "n_classes": 3, "pool": 60},
    "one item, one annotator": {"n_items": 1, "n_annotators": 1, "n_classes": 2, "asked": 1.0},
}


@pytest.fixture(params=["serial", "threaded"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SERIAL_BELOW", 0 if request.param == "threaded" else 10**9)


def random_rows(rng: np.random.Generator, *shape: int) -> oracles.Floats:
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_messages_are_the_sum_over_labels(shape: dict[str, int]) -> None:
    rng = np.random.default_rng(1)
    annotations = oracles.crowd(rng, **shape)[0].annotations
    log_pi_kjl = np.log(random_rows(rng, annotations.n_annotators, annotations.n_classes, annotations.n_options))
    got = kernels.messages(annotations, log_pi_kjl.transpose(0, 2, 1))
    np.testing.assert_allclose(got, oracles.messages(annotations, log_pi_kjl), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_counts_are_the_sum_over_labels(shape: dict[str, int]) -> None:
    rng = np.random.default_rng(2)
    annotations = oracles.crowd(rng, **shape)[0].annotations
    q_nj = random_rows(rng, annotations.n_items, annotations.n_classes)
    got = kernels.counts(annotations, q_nj)
    np.testing.assert_allclose(got.transpose(0, 2, 1), oracles.counts(annotations, q_nj), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("rows", [1, 25])
def test_beliefs_are_a_softmax_and_its_normaliser(rows: int) -> None:
    rng = np.random.default_rng(3)
    message, prior = rng.normal(size=(25, 4)) * 400, rng.normal(size=(rows, 4)) * 400
    q_nj, log_z_n = kernels.beliefs(message, prior)
    expected = logsumexp(message + prior, axis=1)
    np.testing.assert_allclose(log_z_n, expected, rtol=1e-12)
    np.testing.assert_allclose(q_nj, np.exp(message + prior - expected[:, None]), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("twin")
def test_a_single_item_keeps_its_own_prior() -> None:
    q_nj, _ = kernels.beliefs(np.zeros((1, 2)), np.log([[0.3, 0.7]]))
    np.testing.assert_allclose(q_nj, [[0.3, 0.7]], atol=1e-12)


@pytest.mark.usefixtures("twin")
def test_no_labels_at_all_give_zeros() -> None:
    none = np.empty(0, np.int32)
    annotations = Annotations(none, none, none, ("a", "b"), (), ("x", "y"), ("x", "y"))
    assert kernels.messages(annotations, np.zeros((0, 2, 2))).tolist() == [[0, 0], [0, 0]]
    assert kernels.counts(annotations, np.full((2, 2), 0.5)).shape == (0, 2, 2)


def test_pool_normalisers_are_those_of_the_weighted_sum() -> None:
    rng = np.random.default_rng(4)
    log_p, weight = np.log(random_rows(rng, 3, 20, 4)), rng.uniform(0, 2, size=(20, 3))
    expected = logsumexp(np.einsum("nm,mnj->nj", weight, log_p), axis=1)
    np.testing.assert_allclose(kernels.log_normalisers(log_p, weight), expected, rtol=0, atol=1e-12)


def test_inputs_are_not_written_to_and_any_memory_order_will_do() -> None:
    rng = np.random.default_rng(5)
    annotations = oracles.crowd(rng, 10, 3, 3)[0].annotations
    q_nj = random_rows(rng, 10, 3)
    frozen = np.asfortranarray(q_nj)
    frozen.setflags(write=False)
    np.testing.assert_allclose(kernels.counts(annotations, frozen), kernels.counts(annotations, q_nj), atol=0)
