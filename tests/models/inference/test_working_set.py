"""Large tables are fitted in few passes: to where all passes lead, or higher; small ones as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene
from hitl.models.inference import working_set
from hitl.models.inference.engine import Shards
from hitl.models.inference.working_set import BINS, first_bins, judged
from hitl.models.priors import Same
from tests import oracles
from tests.bench.bench_speed import crowd
from tests.models.shards import Counting, Elsewhere, cut, stacked

ITEMS = 8_000


@pytest.fixture(scope="module")
def large() -> Evidence:
    return Evidence(crowd(ITEMS, 120, 10, 8)[0])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "pays", lambda labels, cells, prior: isinstance(prior, Same))


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Any:
    def switch() -> None:
        monkeypatch.setattr(working_set, "pays", lambda *_: False)

    return switch


@pytest.mark.parametrize("method", [DawidSkene, VBIBCC])
def test_few_passes_end_where_many_do(method: Any, large: Evidence, never: Any) -> None:
    quick = method().fit(large)
    never()
    whole, exact = method().fit(large), method(tolerance=1e-11, max_iterations=5000).fit(large)
    assert quick.fit.converged
    assert quick.fit.iterations < whole.fit.iterations / 2
    assert quick.fit.objective[-1] >= whole.fit.objective[-1] - 2 * method().tolerance * ITEMS  # each ends so near
    assert _far(quick, exact) <= 1.1 * _far(whole, exact)
    assert (quick.codes != exact.codes).mean() <= 1e-4 + (whole.codes != exact.codes).mean()


def _far(one: Any, other: Any) -> float:
    return float(np.abs(one.probabilities - other.probabilities).mean())


@pytest.mark.parametrize("method", [DawidSkene, VBIBCC])
def test_the_objective_never_falls(method: Any, large: Evidence) -> None:
    trace = np.array(method(tolerance=1e-9).fit(large).fit.objective)
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


@pytest.mark.parametrize("method", [DawidSkene(), VBIBCC(), VBIBCC(least_labels=2), VBIBCC(shared=False)])
@pytest.mark.usefixtures("always")
def test_known_truths_gaps_and_other_answers(method: Any, never: Any) -> None:
    evidence, _ = oracles.crowd(
        np.random.default_rng(0), 900, 9, 3, n_options=4, asked=0.5, known=0.1, unlabeled=20, pool=300
    )
    quick = method.fit(evidence)
    never()
    whole = method.fit(evidence)
    assert quick.fit.objective[-1] >= whole.fit.objective[-1] - 2 * method.tolerance * 900
    assert np.abs(quick.probabilities - whole.probabilities).mean() < 2e-3
    assert evidence.truth is not None
    known = evidence.known
    assert (quick.probabilities[known, evidence.truth[known]] == 1).all()


@pytest.mark.parametrize("method", [DawidSkene, VBIBCC])
def test_shards_are_fitted_in_as_few_passes(method: Any, large: Evidence) -> None:
    whole, engine = method().fit(large), Counting()
    shards = cut(large, 2500, 2600, 6000)
    learned = method().fit(Shards(shards, engine))
    assert learned.fit.iterations == whole.fit.iterations
    assert len(engine.passes) == whole.fit.iterations + 2  # a census, and the votes
    np.testing.assert_allclose(
        stacked(method(), learned, shards), method().apply(whole, large).probabilities, atol=1e-6
    )
    alone = method().fit(Shards([large]))
    np.testing.assert_array_equal(stacked(method(), alone, [large]), method().apply(whole, large).probabilities)
    there = method().fit(Shards(shards, Elsewhere()))
    np.testing.assert_array_equal(stacked(method(), there, shards), stacked(method(), learned, shards))


def test_where_many_items_are_unsure_the_loop_runs_on_over_all(never: Any) -> None:
    evidence = Evidence(crowd(12_000, 120, 5, 3)[0])
    quick = DawidSkene().fit(evidence)
    shards = cut(evidence, 5000)
    learned = DawidSkene().fit(Shards(shards))
    np.testing.assert_allclose(
        stacked(DawidSkene(), learned, shards), DawidSkene().apply(quick, evidence).probabilities, atol=1e-6
    )
    never()
    whole = DawidSkene().fit(evidence)
    assert quick.fit.objective[-1] == pytest.approx(whole.fit.objective[-1], abs=1e-7 * 12_000)
    assert np.abs(quick.probabilities - whole.probabilities).mean() < 1e-3


def test_bins_are_in_order_of_sureness_and_counted_in_labels() -> None:
    rng = np.random.default_rng(0)
    evidence, _ = oracles.crowd(rng, 300, 6, 3, asked=0.6, known=0.05)
    annotations = evidence.annotations
    counted_n = rng.random(300) < 0.8
    log_pi_klj = 3 * np.log(rng.dirichlet(np.ones(3), size=(6, 3))).transpose(0, 2, 1)
    log_pi_klj[0] = np.log(np.eye(3) + 1e-300)  # whoever this one labels is sure
    found = judged(evidence, log_pi_klj, np.log(np.full(3, 1 / 3)), counted_n, 0)
    q_nj, bin_n, labels_b = found.q_nj, found.bin_n, found.labels_b
    among_n = counted_n & ~evidence.known
    unsure_n = 1 - q_nj.max(axis=1)
    order = np.argsort(-unsure_n[among_n], kind="stable")
    assert (np.diff(bin_n[among_n][order].astype(int)) >= 0).all()
    assert (bin_n[~among_n] == BINS - 1).all()
    assert (bin_n[unsure_n == 0] == BINS - 1).all()
    assert 0 < (unsure_n[among_n] == 0).sum() < among_n.sum()
    labels_n = annotations.labels_per_item
    for b in np.unique(bin_n):
        assert labels_b[b] == labels_n[among_n & (bin_n == b)].sum()
    most = first_bins(labels_b, 0.9, 50)
    assert labels_b[:most].sum() <= 50 < labels_b[: most + 1].sum()
    some = first_bins(labels_b, 0.9, 10**9)
    unsure = unsure_n * labels_n * among_n
    assert unsure[bin_n < some].sum() == pytest.approx(0.9 * unsure.sum(), rel=0.15)
