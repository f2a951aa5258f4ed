"""Every method that has the settings of a paper: it says which paper, keeps the contract, and is made by its name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import hitl
from hitl.errors import BadSettings
from hitl.models import DBCC, VBIBCC, registry
from hitl.models.methods import COMBINERS
from hitl.models.registry import chosen, published, with_papers
from hitl.testing.combiners import FACTS
from hitl.testing.contract import DoesNotApply
from tests.models.test_combiners_contract import CHEAP, EXEMPT, START

PAPERS = (
    *("weighted-majority", "vb-ibcc", "gibbs-ibcc", "ebcc", "dbcc", "edbcc"),
    *("pl", "pl-em", "bayesian-pl"),
)
SAME = ("gibbs-ibcc",)
"""Methods whose defaults are the paper's."""

EXEMPT_AS_PRINTED = {
    (
        "WeightedMajority",
        "not worse than a vote",
    ): "after some tens of known items the best annotator outvotes all others",
    (
        "WeightedMajority",
        "what was learned judges other items",
    ): "after some tens of known items the best annotator outvotes all others",
}
"""(class, fact) -> why it does not hold with the settings of the paper, besides those of the defaults."""

every_paper = pytest.mark.parametrize("name", PAPERS)


def test_these_methods_have_a_paper() -> None:
    assert with_papers() == list(PAPERS)


@every_paper
def test_it_says_which_paper_and_sets_nothing_but_settings(name: str) -> None:
    made = COMBINERS.load(name)
    assert type(made.paper()) is made
    assert re.match(r"Return the settings of .*(19|20)\d\d", made.paper.__doc__)
    assert (made.paper() == made()) == (name in SAME)


@pytest.mark.journey
@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("fact", FACTS)
def test_contract(name: str, fact: str) -> None:
    made = COMBINERS.load(name)
    exempt = EXEMPT | EXEMPT_AS_PRINTED
    if name in SAME or (made.__name__, fact) in exempt:
        pytest.skip(exempt.get((made.__name__, fact), "the defaults are tested"))
    try:
        FACTS[fact](replace(made.paper(), **({} if "vote" in fact else CHEAP.get(made.__name__, {}))))
    except DoesNotApply as reason:
        pytest.skip(str(reason))


def test_every_exemption_is_of_a_paper_and_a_fact_that_exist() -> None:
    assert {made for made, _ in EXEMPT_AS_PRINTED} <= {COMBINERS.load(name).__name__ for name in PAPERS}
    assert {fact for _, fact in EXEMPT_AS_PRINTED} <= set(FACTS)
    assert START in FACTS


def test_a_method_is_made_by_its_name_and_settings_of_ones_own_stand() -> None:
    assert published("vb-ibcc") == VBIBCC.paper()
    assert published("vb-ibcc", diagonal=5.0) == VBIBCC(diagonal=5.0, shared=False, begin="prior")
    assert published("pl", temperature={"mean": 0.1, "sd": 0.2}).temperature.mean == 0.1  # type: ignore[attr-defined]
    assert chosen("dbcc", {}, True) == DBCC.paper()
    assert chosen("dbcc", {}, False) == DBCC()
    with pytest.raises(BadSettings, match="method 'vb-ibcc' has no setting 'diag'"):
        published("vb-ibcc", diag=5.0)
    listed = ", ".join(PAPERS)
    with pytest.raises(BadSettings, match=f"^method 'majority' has no settings of a paper; these have: {listed}$"):
        published("majority")
    with pytest.raises(BadSettings, match="method 'no-such' is unknown"):
        published("no-such")


def test_a_saved_fit_has_the_settings() -> None:
    evidence = hitl.Evidence(hitl.Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
    fit: Any = VBIBCC.paper().fit(evidence).fit
    assert registry.combiner_of(fit) == VBIBCC.paper()
