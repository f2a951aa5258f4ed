"""Shards that hold whole sequences give what one table gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import SequentialDawidSkene
from hitl.models.inference.engine import Shards
from hitl.shards.combining import combine
from hitl.shards.reading import StoredShards, write
from tests.models.sequences.test_sequential import simulated
from tests.models.shards import cut

FAR = 1e-6
METHOD = SequentialDawidSkene()


def evidence_of(models: bool = False, known: bool = False, gaps: bool = False) -> Evidence:
    evidence, truth, _, _ = simulated(400, 3, sticky=0.6)
    rng, annotations = np.random.default_rng(1), evidence.annotations
    if gaps:
        annotations = annotations.select(rng.random(len(annotations)) < 0.15)
    p_nj = rng.dirichlet(np.ones(4), size=400)
    p_nj[np.arange(400), truth] += 0.5
    p_nj /= p_nj.sum(axis=1, keepdims=True)
    p_nj[rng.random(400) < 0.3] = np.nan
    told = np.where(rng.random(400) < 0.1, truth, -1).astype(np.int32) if known else None
    return Evidence(annotations, {"net": p_nj} if models else {}, truth=told, sequence=evidence.sequence)


def ends(evidence: Evidence, every: int) -> list[int]:
    """Where one of so many sequences ends."""
    assert evidence.sequence is not None
    return (np.flatnonzero(np.diff(evidence.sequence[:, 0])) + 1).tolist()[::every]


def require_alike(found: Consensus, expected: Consensus, far: float) -> None:
    assert found.fit.converged == expected.fit.converged
    assert found.parameters.keys() == expected.parameters.keys()
    for name, value in expected.parameters.items():
        np.testing.assert_allclose(found.parameters[name], value, atol=far, rtol=far, err_msg=name)
    np.testing.assert_allclose(found.class_shares, expected.class_shares, atol=far, rtol=far)
    np.testing.assert_allclose(found.annotators.confusion, expected.annotators.confusion, atol=far, rtol=far)
    np.testing.assert_allclose(found.fit.objective, expected.fit.objective, rtol=far)


def test_a_folder_of_shards_keeps_places_in_sequences(tmp_path: Path) -> None:
    evidence = evidence_of(models=True, known=True)
    for name in ("shards", "cut"):
        (tmp_path / name).mkdir()
    parts = cut(evidence, *ends(evidence, 4))
    write(parts, str(tmp_path / "shards"))
    shards = StoredShards.open(str(tmp_path / "shards"))
    np.testing.assert_array_equal(np.concatenate([shard.sequence for shard in shards]), evidence.sequence)
    found = combine(shards, str(tmp_path / "out"), METHOD)
    whole = METHOD.fit(evidence)
    require_alike(found.learned, whole, FAR)
    assert found.confidence == pytest.approx(METHOD.apply(whole, evidence).confidence.mean(), abs=FAR)
    with pytest.raises(BadEvidence, match="is in the tables 0 and 1; expected all its items in one"):
        write(cut(evidence, ends(evidence, 1)[0] + 1), str(tmp_path / "cut"))
    with pytest.raises(BadEvidence, match="expected sequence=, in every shard"):
        METHOD.fit(Shards([parts[0], replace(parts[1], sequence=None)]))
