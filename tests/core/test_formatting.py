"""Results print as one line, however large they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active import Evenly, Replay
from hitl.crew import Budget, Crew
from hitl.formatting import listed
from hitl.models import DefaultCombiner, MajorityVote
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.analysis.model_profile import ModelProfiler
from hitl.testing import crowd

EVIDENCE, _ = crowd(np.random.default_rng(0), n_items=1150, n_annotators=20, models=1, known=0.3)
CONSENSUS = DefaultCombiner().fit(EVIDENCE)
PLAN = Evenly().plan([(EVIDENCE, CONSENSUS)], Crew(("ann", "bob")), Budget(open_questions=50))
RESULTS = {
    "Annotations": EVIDENCE.annotations,
    "Evidence": EVIDENCE,
    "Consensus": CONSENSUS,
    "Plan": PLAN,
    "AnnotatorReport": CONSENSUS.annotators,
    "Fit": CONSENSUS.fit,
    "AnnotatorProfiles": AnnotatorProfiler().fit(EVIDENCE, CONSENSUS),
    "ModelProfile": ModelProfiler().fit(EVIDENCE, CONSENSUS),
    "ReplayResult": Replay(MajorityVote(), most_labels=300).run(replace(EVIDENCE, probabilities={})),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints_as_one_short_line(name: str) -> None:
    shown = repr(RESULTS[name])
    assert shown.startswith(f"{name}(")
    assert "\n" not in shown
    assert len(shown) < 200
    assert str(RESULTS[name]) in shown


def test_lines_say_what_there_is() -> None:
    assert str(EVIDENCE).startswith(f"{len(EVIDENCE.annotations):,} labels of 20 annotators on 1,150 items; classes: ")
    assert "probabilities of m0; ground truth of" in str(EVIDENCE)
    assert f"mean confidence {CONSENSUS.confidence.mean():.3f}" in str(CONSENSUS)
    assert listed(range(100)) == "0, 1, 2, 3, 4, 5, 6, 7, ... and 92 more"
