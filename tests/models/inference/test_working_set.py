"""Large tables are fitted in few passes: to where all passes lead, or higher; small ones as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene
from hitl.models.inference import working_set
from hitl.models.inference.engine import Shards
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
