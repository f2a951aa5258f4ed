"""The baselines of P+L on CIFAR-10H, beside the reference figures (error in percent, n = 10 and 5000)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.bench_pl import own_cell, run

pytestmark = pytest.mark.journey

BARS = {("L+L", 5000): 4.72, ("SP", 10): 4.04, ("SP", 5000): 2.93, ("LR", 10): 37.7, ("LR", 5000): 3.75}
HUMAN = 4.62
"""Mean of 25 splits, and how often one person errs there; ours is another draw of one person an image."""


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int], np.ndarray]:
    return run(("resnet-110",), splits=4, sizes=(10, 5000), methods=("P+L", "Bayesian", "SP", "L+L", "LR"))


@pytest.mark.parametrize("key", BARS, ids=str)
def test_baselines_err_as_published_or_less(rows: dict[tuple[str, int], np.ndarray], key: tuple[str, int]) -> None:
    worse_people = rows["human", 0][:, 0].mean() - HUMAN
    assert rows[key][:, 0].mean() < BARS[key] + max(worse_people, 0) + 0.15


def test_what_each_leaves_out_costs(rows: dict[tuple[str, int], np.ndarray]) -> None:
    """P+L over L+L: confidence; over SP: who takes what for what; over LR at n = 10: eq. 3 itself."""
    error = {key: values[:, 0].mean() for key, values in rows.items()}
    assert error["P+L", 5000] < error["L+L", 5000] - 1
    assert error["P+L", 5000] < error["SP", 5000]
    assert error["P+L", 10] < error["LR", 10] - 1
    assert error["L+L", 5000] > error["human", 0] - 0.2


def test_averaging_over_the_temperature_makes_up_for_little_truth(rows: dict[tuple[str, int], np.ndarray]) -> None:
    log_loss = {key: values[:, 3] for key, values in rows.items()}
    assert (log_loss["Bayesian", 10] < log_loss["P+L", 10]).mean() > 0.5
    assert log_loss["Bayesian", 10].mean() < log_loss["P+L", 10].mean() - 0.002
    assert abs(log_loss["Bayesian", 5000] - log_loss["P+L", 5000]).max() < 0.001


def test_the_papers_own_cell() -> None:
    """Maximum likelihood on all of the first 70 %; published: human 4.62, model 6.10, both 2.85."""
    rows = own_cell("resnet-110", splits=3)["P+L by maximum likelihood", 7000]
    assert rows[:, 0].mean() < 2.85 + 0.22 + 0.15
