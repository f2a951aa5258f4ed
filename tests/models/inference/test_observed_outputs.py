"""Models beside chains and fields: what a model says is one more observation of an item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from hitl import Evidence
from hitl.annotations import Floats, Ints
from hitl.models import BSCSeq, NetworkDawidSkene, NetworkIBCC, SequentialDawidSkene, SequentialIBCC, VBIBCCWithModels
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.priors.shares import Fixed
from tests.models.graphs.test_networks import patches
from tests.models.sequences.test_sequential import simulated


def predicted(truth: Ints, seed: int, n_classes: int, sure: float = 1.5, abstains: float = 0.0) -> Floats:
    """A model right in about six of ten cases."""
    rng = np.random.default_rng(seed)
    logits_nj = rng.normal(size=(truth.size, n_classes)) + sure * np.eye(n_classes)[truth]
    p_nj: Floats = softmax(1.5 * logits_nj, axis=1)
    p_nj[rng.random(truth.size) < abstains] = np.nan
    return p_nj


def on_a_chain() -> tuple[Evidence, Ints]:
    """Three annotators who are right in .2 to .5 of the cases."""
    evidence, truth, _, _ = simulated(3000, 5, sticky=0.6, right=(0.0, 0.3))
    few = evidence.annotations.select(evidence.annotations.annotator < 3)
    return replace(evidence, annotations=few), truth


def on_a_graph() -> tuple[Evidence, Ints]:
    return patches(40, 6, labels_an_item=0.4)


@pytest.mark.parametrize(
    ("method", "made"),
    [
        (SequentialDawidSkene(), on_a_chain),
        (SequentialIBCC(), on_a_chain),
        (BSCSeq(), on_a_chain),
        (NetworkDawidSkene(), on_a_graph),
        (NetworkIBCC(), on_a_graph),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_neighbours_and_a_model_together_are_better_than_either(method: Any, made: Any) -> None:
    evidence, truth = made()
    model = {"net": predicted(truth, 7, evidence.annotations.n_classes, abstains=0.2)}
    both = method.fit(replace(evidence, probabilities=model))
    right = {
        "both": (both.codes == truth).mean(),
        "neighbours": (method.fit(evidence).codes == truth).mean(),
        "model": (VBIBCCWithModels().fit(Evidence(evidence.annotations, model)).codes == truth).mean(),
    }
    assert right["both"] > max(right["neighbours"], right["model"]) + 0.01, right
    assert 0.3 < both.temperatures["net"] < 3
    again = method.apply(both, replace(evidence, probabilities=model))
    assert (again.codes == both.codes).mean() > 0.97


def test_what_a_model_says_counts_once_beside_the_shares_of_the_prior() -> None:
    """With the shares that the model itself has on the average, its calibrated probabilities are the beliefs."""
    _, truth = on_a_graph()
    evidence, _ = patches(40, 6, labels_an_item=2)
    outputs = Outputs.of(Evidence(evidence.annotations, {"net": predicted(truth, 8, 3, abstains=0.3)}))
    assert outputs.pool is not None
    shares = Fixed(np.log(np.tile(outputs.share_j, (1600, 1))))
    found = outputs.beside(shares).posterior(np.zeros((1600, 3)), np.ones(1600, bool))
    expected_nj = np.exp(outputs.pool.log_prior())
    np.testing.assert_allclose(found.q_nj[~outputs.pool.abstained_n], expected_nj[~outputs.pool.abstained_n], atol=1e-9)
    np.testing.assert_allclose(
        found.q_nj[outputs.pool.abstained_n],
        outputs.share_j[None].repeat(outputs.pool.abstained_n.sum(), axis=0),
        atol=1e-9,
    )


def test_without_a_model_nothing_is_observed() -> None:
    evidence, _ = patches(10, 9)
    outputs, message_nj = Outputs.of(evidence), np.random.default_rng(0).normal(size=(100, 3))
    fixed, everything = Fixed(np.zeros((100, 3))), np.ones(100, bool)
    alone, beside = (one.posterior(message_nj.copy(), everything) for one in (fixed, outputs.beside(fixed)))
    np.testing.assert_array_equal(alone.q_nj, beside.q_nj)
    assert outputs.kept({"a": message_nj}) == {"parameters": {"a": message_nj}}
