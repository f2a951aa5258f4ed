"""The hot loops against plain loops, alone and with any number of threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import special as scipy_special
from scipy.special import logsumexp

from hitl.annotations import Annotations
from hitl.models.numerics import kernels, special
from hitl.models.numerics.compiled import compiled
from tests import oracles

SHAPES = {
    "square": {"n_items": 30, "n_annotators": 5, "n_classes": 3},
    "more options than classes": {"n_items": 30, "n_annotators": 5, "n_classes": 2, "n_options": 5},
    "items without labels": {"n_items": 30, "n_annotators": 5, "n_classes": 3, "unlabeled": 7},
    "sparse": {"n_items": 40, "n_annotators": 6, "n_classes": 4, "asked": 0.1},
    "an anonymous pool": {"n_items": 20, "n_annotators": 3, "n_classes": 3, "pool": 60},
    "one item, one annotator": {"n_items": 1, "n_annotators": 1, "n_classes": 2, "asked": 1.0},
}


@pytest.fixture(params=[1, 2, 7])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The loops in so many runs, more than there are items at times; 1 is the calling thread alone."""
    monkeypatch.setattr(kernels, "SERIAL_BELOW", 0)
    monkeypatch.setattr(kernels, "get_num_threads", lambda: request.param)
    return int(request.param)


def skewed(rng: np.random.Generator) -> Annotations:
    """One item and one annotator have most of the labels; many items and annotators have none."""
    rows = {(n, k) for n in (3, 50) for k in range(40)} | {(n, 7) for n in range(10, 60)} | {(0, 0), (199, 59)}
    item, annotator = np.array(sorted(rows), np.int32).T
    label = rng.integers(4, size=len(rows)).astype(np.int32)
    classes = oracles.names("j", 3)
    return Annotations(
        item, annotator, label, oracles.names("n", 200), oracles.names("k", 60), classes, (*classes, "unsure")
    )


def random_rows(rng: np.random.Generator, *shape: int) -> oracles.Floats:
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_messages_are_the_sum_over_labels(shape: dict[str, int]) -> None:
    rng = np.random.default_rng(1)
    annotations = oracles.crowd(rng, **shape)[0].annotations
    log_pi_kjl = np.log(random_rows(rng, annotations.n_annotators, annotations.n_classes, annotations.n_options))
    got = kernels.messages(annotations, log_pi_kjl.transpose(0, 2, 1))
    np.testing.assert_allclose(got, oracles.messages(annotations, log_pi_kjl), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_counts_are_the_sum_over_labels(shape: dict[str, int]) -> None:
    rng = np.random.default_rng(2)
    annotations = oracles.crowd(rng, **shape)[0].annotations
    q_nj = random_rows(rng, annotations.n_items, annotations.n_classes)
    got = kernels.counts(annotations, q_nj)
    np.testing.assert_allclose(got.transpose(0, 2, 1), oracles.counts(annotations, q_nj), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("threads")
def test_threads_do_not_write_over_each_other() -> None:
    """All labels fall into two cells of one pool: where threads shared a table, some would be lost."""
    item = np.repeat(np.arange(200_000, dtype=np.int32), 10)
    label = (item % 2).astype(np.int32)
    pool = Annotations(item, np.zeros_like(item), label, tuple(range(200_000)), ("pool",), (0, 1), (0, 1), 0)
    assert kernels.counts(pool, np.ones((200_000, 2))).tolist() == [[[1_000_000] * 2] * 2]


@pytest.mark.usefixtures("threads")
def test_only_the_items_asked_for_are_counted() -> None:
    rng = np.random.default_rng(7)
    annotations = skewed(rng)
    q_nj, among_n = random_rows(rng, 200, 3), rng.random(200) < 0.6
    got = kernels.counts(annotations, q_nj, among_n)
    expected = oracles.counts(annotations, np.where(among_n[:, None], q_nj, 0.0))
    np.testing.assert_allclose(got.transpose(0, 2, 1), expected, rtol=0, atol=1e-12)
    assert kernels.counts(annotations, q_nj, np.zeros(200, bool)).sum() == 0


def test_fewer_threads_count_where_their_tables_would_take_too_much(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    rng = np.random.default_rng(8)
    annotations = skewed(rng)
    q_nj = random_rows(rng, 200, 3)
    for tables in (0, 2 * 60 * 4 * 3 * 8):
        monkeypatch.setattr(kernels, "TABLES", tables)
        got = kernels.counts(annotations, q_nj)
        np.testing.assert_allclose(got.transpose(0, 2, 1), oracles.counts(annotations, q_nj), rtol=0, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 50])
def test_runs_share_the_work_evenly_and_cover_every_item_once(parts: int) -> None:
    annotations = skewed(np.random.default_rng(9))
    runs = kernels.equal_runs(annotations, parts)
    assert (runs[0], runs[-1], len(runs)) == (0, 200, parts + 1)
    assert (np.diff(runs) >= 0).all()
    work = np.array([(annotations.labels_per_item[a:b] + 1).sum() for a, b in pairwise(runs)])
    assert work.max() <= work.sum() / parts + annotations.labels_per_item.max() + 1  # at most an item too many


def test_codes_of_cells_may_be_wide() -> None:
    """So many annotators and options that 32 bits do not hold their product have 64-bit codes."""
    rng = np.random.default_rng(10)
    narrow, wide = skewed(rng), skewed(np.random.default_rng(10))
    wide.__dict__["cell"] = narrow.cell.astype(np.uint64)
    q_nj = random_rows(rng, 200, 3)
    np.testing.assert_array_equal(kernels.counts(wide, q_nj), kernels.counts(narrow, q_nj))
    assert narrow.cell.tolist() == (narrow.annotator * 4 + narrow.label).tolist()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rows", [1, 25])
def test_beliefs_are_a_softmax_and_its_normaliser(rows: int) -> None:
    rng = np.random.default_rng(3)
    message, prior = rng.normal(size=(25, 4)) * 400, rng.normal(size=(rows, 4)) * 400
    q_nj, log_z_n = kernels.beliefs(message, prior)
    expected = logsumexp(message + prior, axis=1)
    np.testing.assert_allclose(log_z_n, expected, rtol=1e-12)
    np.testing.assert_allclose(q_nj, np.exp(message + prior - expected[:, None]), rtol=0, atol=1e-12)


def test_the_impossible_has_no_probability_and_what_is_no_number_stays_none() -> None:
    message = np.array([[0.0, -np.inf, -1e300], [-5.0, -800.0, -5.0], [0.0, np.nan, 0.0]])
    q_nj, log_z_n = kernels.beliefs(message, np.zeros((1, 3)))
    assert q_nj[:2].tolist() == [[1, 0, 0], [0.5, 0, 0.5]]
    np.testing.assert_allclose(log_z_n[:2], [0, -5 + np.log(2)])
    assert np.isnan([*q_nj[2], log_z_n[2]]).all()


def test_the_exponential_is_right_to_the_last_bits() -> None:
    """As seen in two classes: q1 / q0 = exp(x), in all its range."""
    x = np.concatenate((-np.linspace(0, 708, 200_001), -np.geomspace(1e-20, 1, 1000)))
    q_nj, _ = kernels.beliefs(np.column_stack((np.zeros_like(x), x)), np.zeros((1, 2)))
    np.testing.assert_allclose(q_nj[:, 1] / q_nj[:, 0], np.exp(x), rtol=1e-15)


@pytest.mark.parametrize("classes", [2, 3, 10, 300])
def test_the_logarithm_is_right_to_the_last_bits(classes: int) -> None:
    """With all mass on t of the classes the normaliser is ln t, and near it where the rest has little."""
    shares = np.linspace(0.0, 1.0, 5000)[:, None] * np.ones(classes - 1)
    with np.errstate(divide="ignore"):
        _, log_z_n = kernels.beliefs(np.column_stack((np.zeros(5000), np.log(shares))), np.zeros((1, classes)))
    np.testing.assert_allclose(log_z_n, np.log1p(shares.sum(axis=1)), rtol=3e-15, atol=1e-16 * classes)


@pytest.mark.usefixtures("threads")
def test_totals_are_sums_over_the_items_asked_for() -> None:
    rng = np.random.default_rng(13)
    q_nj, among_n = random_rows(rng, 300, 4), rng.random(300) < 0.5
    np.testing.assert_allclose(kernels.totals(q_nj, among_n), q_nj[among_n].sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(kernels.totals(np.asfortranarray(q_nj), among_n), q_nj[among_n].sum(axis=0), rtol=1e-13)
    weight_n = rng.random(300)
    np.testing.assert_allclose(kernels.totals(q_nj, weight_n), weight_n @ q_nj, rtol=1e-13)


@pytest.mark.usefixtures("threads")
def test_no_labels_at_all_give_zeros() -> None:
    none = np.empty(0, np.int32)
    annotations = Annotations(none, none, none, ("a", "b"), (), ("x", "y"), ("x", "y"))
    assert kernels.messages(annotations, np.zeros((0, 2, 2))).tolist() == [[0, 0], [0, 0]]
    assert kernels.counts(annotations, np.full((2, 2), 0.5)).shape == (0, 2, 2)


def test_pool_normalisers_are_those_of_the_weighted_sum() -> None:
    rng = np.random.default_rng(4)
    log_p, weight = np.log(random_rows(rng, 3, 20, 4)), rng.uniform(0, 2, size=(20, 3))
    expected = logsumexp(np.einsum("nm,mnj->nj", weight, log_p), axis=1)
    np.testing.assert_allclose(kernels.pooled(log_p, weight)[1], expected, rtol=0, atol=1e-12)


def test_inputs_are_not_written_to_and_any_memory_order_will_do() -> None:
    rng = np.random.default_rng(5)
    annotations = oracles.crowd(rng, 10, 3, 3)[0].annotations
    q_nj = random_rows(rng, 10, 3)
    frozen = np.asfortranarray(q_nj)
    frozen.setflags(write=False)
    np.testing.assert_allclose(kernels.counts(annotations, frozen), kernels.counts(annotations, q_nj), atol=0)
    for given in (frozen, frozen[::2], np.log(frozen)[:, ::-1]):
        for ours, theirs in zip(kernels.beliefs(given, q_nj[:1]), kernels.beliefs(given.copy(), q_nj[:1]), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# -- special functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False], ids=["threads", "one thread"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(special.digamma, scipy_special.digamma), (special.log_gamma, scipy_special.gammaln)],
    ids=["digamma", "log gamma"],
)
def test_special_functions_are_scipys(monkeypatch: pytest.MonkeyPatch, share: bool, ours, theirs) -> None:
    monkeypatch.setattr(special, "THREADS_FROM", 0 if share else 10**9)
    rng = np.random.default_rng(12)
    for x in (
        10 ** rng.uniform(-150, 30, size=20_000),
        rng.uniform(0.001, 60, size=(20, 30, 40)),
        np.asfortranarray(rng.uniform(1, 2, size=(30, 40))),
        np.array(2.5),
        np.empty((0, 3)),
    ):
        expected = theirs(x)
        got = ours(x)
        assert got.shape == expected.shape
        np.testing.assert_array_less(np.abs(got - expected), 1e-14 * np.maximum(np.abs(expected), 10))


def test_where_nothing_can_be_kept_the_code_is_compiled_all_the_same() -> None:
    namespace: dict[str, object] = {}
    exec("def twice(x):\n    return 2 * x", namespace)  # a function without a file has no folder to keep code in
    assert compiled(namespace["twice"])(21) == 42  # type: ignore[type-var, operator]
