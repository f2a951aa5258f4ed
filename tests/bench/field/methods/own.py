"""hitl's default, and four published methods as hitl implements them."""

from __future__ import annotations

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene, DefaultCombiner, MajorityVote
from hitl.models.combiner import Combiner
from hitl.models.ptbcc import PTBCC
from tests.bench.field.methods import Fit

PACKAGE = "hitl-toolkit"


def fit_of(combiner: Combiner) -> Fit:
    def fit(annotations: Annotations) -> Floats:
        return combiner.fit(Evidence(annotations)).probabilities

    return fit


METHODS = {
    "hitl default": fit_of(DefaultCombiner()),
    "hitl majority": fit_of(MajorityVote()),
    "hitl VB-IBCC, plain": fit_of(VBIBCC(shared=False)),
    "hitl Dawid–Skene": fit_of(DawidSkene()),
    "hitl PTBCC": fit_of(PTBCC()),
}
