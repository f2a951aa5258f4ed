"""Every combiner passes the contract of `hitl.testing.combiners`. Combiners are found by looking into the modules of
hitl.models, so a new one is tested without being listed; what one may do otherwise stands in EXEMPT, with the reason.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import hitl.models
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadEvidence, BadSettings, IgnoredEvidence
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, VBIBCC, DefaultCombiner, MajorityVote, methods
from hitl.models.combiner import used
from hitl.testing.combiners import FACTS, check_combiner
from hitl.testing.contract import DoesNotApply, check
from hitl.testing.crowds import crowd, sample, with_everything
from tests.command_line import Run
from tests.compile_kernels import long_in_journeys

CHEAP: dict[str, dict[str, Any]] = {
    "VariationalGPCMA": {"inducing": 20, "learning_steps": 3, "tolerance": 1e-4, "device": "cpu"},
    "GPCMA": {"tolerance": 1e-2},
    "GPCGold": {"tolerance": 1e-3},
    "GPCMajority": {"tolerance": 1e-3},
    "GPCConcatenated": {"tolerance": 1e-2},
    "GibbsIBCC": {"chains": 2, "burn_in": 100, "draws": 1500, "thin": 1},
    "EBCC": {"chains": 2, "burn_in": 100, "draws": 1500, "thin": 1},
    "DBCC": {"chains": 2, "burn_in": 100, "draws": 100, "thin": 1, "exact_states": 512},
    "EDBCC": {"chains": 2, "burn_in": 100, "draws": 100, "thin": 1, "exact_states": 512},
    "Learned": {"folds": 2},
}
"""Settings under which a slow method takes a fraction of its time, and is still right."""

ORDERS = ("items", "annotators", "classes")
START, ANY_ORDER = "a start changes nothing in the answer", [f"the order of {what} does not matter" for what in ORDERS]
ALIKE = "an item without labels or predictions gets the prior"
EXEMPT: dict[tuple[str, str], str] = (
    {
        ("MeanScore", "not worse than a vote"): "reads answers as numbers on a line; these classes have no order",
        ("MeanScore", "the order of classes does not matter"): "without numbers as names, the order gives the scores",
        ("MeanScore", "names do not matter"): "names that are numbers are the scores",
        ("Ordinal", "the order of classes does not matter"): "the classes are in order",
        ("Ordinal", "its settings are those of the fit"): "reports the settings of the method it chose",
        (
            "GibbsIBCC",
            "items it learned from are judged as before",
        ): "an item's own labels do not count in its judgement",
        ("DBCC", START): "up to chance: see test_dbcc",
        ("EDBCC", START): "up to chance: see test_edbcc",
        ("DefaultCombiner", "its settings are those of the fit"): "reports the settings of the method it chose",
        ("SequentialDawidSkene", ALIKE): "its neighbours tell of it",
        ("SequentialIBCC", ALIKE): "its neighbours tell of it",
        ("BSCSeq", ALIKE): "its neighbours tell of it",
        ("NetworkDawidSkene", ALIKE): "its neighbours tell of it",
        ("NetworkIBCC", ALIKE): "its neighbours tell of it",
        ("GPCMajority", ALIKE): "all its items have the same features, so that labels of some tell of the others",
        ("GPCConcatenated", ALIKE): "all its items have the same features, so that labels of some tell of the others",
    }
    | {
        (name, fact): "judges by features alone, and these two tell few of the items apart"
        for name in ("GPCGold", "GPCMajority", "GPCConcatenated")
        for fact in ("not worse than a vote", "what was learned judges other items")
    }
    | {
        (name, fact): "known truth of an item reaches its neighbours: see test_sequential, test_networks"
        for name in ("SequentialDawidSkene", "SequentialIBCC", "BSCSeq", "NetworkDawidSkene", "NetworkIBCC")
        for fact in ("what was learned judges other items", "items it learned from are judged as before")
    }
    | {
        (name, order): f"up to chance: see test_{file}"
        for name, file in {"GibbsIBCC": "gibbs_ibcc", "EBCC": "ebcc", "DBCC": "dbcc", "EDBCC": "edbcc"}.items()
        for order in ANY_ORDER
    }
)
"""(class, fact) -> why it does not hold."""


def discover() -> dict[str, type]:
    """Every class of hitl.models that is a dataclass with a `fit(evidence, start)`; bases of methods are abstract."""
    found = {}
    for entry in pkgutil.walk_packages(hitl.models.__path__, "hitl.models."):
        module = importlib.import_module(entry.name)
        for name, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
            if own and dataclasses.is_dataclass(value) and _combines(value):
                found[name] = value
    return found


def _combines(made: type) -> bool:
    """Whether its `fit` takes evidence and a start: what tells a combiner from other models."""
    fit = None if inspect.isabstract(made) else getattr(made, "fit", None)
    return fit is not None and list(inspect.signature(fit).parameters) == ["self", "evidence", "start"]


COMBINERS = discover()
every_combiner = pytest.mark.parametrize("name", long_in_journeys(COMBINERS))


def test_combiners_are_found() -> None:
    assert {"MajorityVote", "DawidSkene", "PL", "PLEM"} <= set(COMBINERS)


def test_the_registry_lists_exactly_the_combiners_found() -> None:
    listed = {methods.COMBINERS.load(name).__name__: methods.COMBINERS.load(name) for name in methods.COMBINERS.own}
    assert listed == COMBINERS
    assert set(COMBINERS) <= set(hitl.models.__all__)
    assert all(getattr(hitl.models, name) is found for name, found in COMBINERS.items())


def test_every_exemption_is_of_a_combiner_and_a_fact_that_exist() -> None:
    assert {name for name, _ in EXEMPT} <= set(COMBINERS)
    assert {fact for _, fact in EXEMPT} <= set(FACTS)
    assert all(EXEMPT.values())


@every_combiner
@pytest.mark.parametrize("fact", FACTS)
def test_contract(name: str, fact: str) -> None:
    if (name, fact) in EXEMPT:
        pytest.skip(EXEMPT[name, fact])
    try:
        FACTS[fact](COMBINERS[name](**CHEAP.get(name, {})))
    except DoesNotApply as reason:
        pytest.skip(str(reason))


@every_combiner
def test_a_start_saves_iterations(name: str) -> None:
    combiner = COMBINERS[name](**CHEAP.get(name, {}))
    evidence, _ = sample(combiner, seed=11, n_items=80)
    cold = combiner.fit(evidence)
    if cold.fit.iterations <= 2:
        pytest.skip("a closed form, or its trace holds the last climb alone: see test_hierarchical_dawid_skene")
    assert combiner.fit(evidence, start=cold).fit.iterations < cold.fit.iterations


# -- what is used, ignored and missing -----------------------------------------------------------------------


def test_what_is_ignored_is_named_with_a_method_that_would_use_it() -> None:
    evidence, _ = crowd(np.random.default_rng(0), 20, models=2)
    with pytest.warns(
        IgnoredEvidence,
        match=r"^vb-ibcc ignores the probabilities of .m0., .m1.; default and hierarchical-dawid-skene do",
    ):
        VBIBCC().fit(evidence)
    featured = Evidence(evidence.annotations, features=np.zeros((20, 1)))
    with pytest.warns(IgnoredEvidence, match="^default ignores the features; gpc-ma and variational-gpc-ma do not$"):
        DefaultCombiner().fit(featured)


def test_a_warning_points_at_the_line_that_fits() -> None:
    evidence, _ = crowd(np.random.default_rng(0), 20, models=1)
    with pytest.warns(IgnoredEvidence) as caught:
        MajorityVote().fit(evidence)
    assert caught[0].filename == __file__


def test_a_table_is_no_evidence_yet() -> None:
    """A DataFrame, as scikit-learn takes it, was answered with an AttributeError of pandas."""
    table = pd.DataFrame({"item": ["a", "a"], "annotator": ["ann", "bob"], "label": ["x", "y"]})
    with pytest.raises(
        BadEvidence, match=r"^vb-ibcc: fit got DataFrame; expected hitl\.Evidence, which Evidence\.from_tables"
    ):
        VBIBCC().fit(table)  # type: ignore[arg-type]


def test_the_command_line_shows_it_as_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,ann,x\nb,ann,y\na,bob,x\nb,bob,y\n")
    (tmp_path / "net.csv").write_text("item,p_x,p_y\na,0.9,0.1\nb,0.2,0.8\n")
    code, _, err = run("combine", "labels.csv", "--method", "vb-ibcc", "--probabilities", "net=net.csv")
    assert (code, err) == (
        0,
        "hitl: warning: vb-ibcc ignores the probabilities of 'net'; default and hierarchical-dawid-skene do not\n",
    )


@pytest.mark.parametrize(
    ("method", "shape", "message"),
    [
        (
            PL(),
            {"models": 1},
            r"^pl needs ground truth .*--truth\) and found none; default and hierarchical-dawid-skene do without$",
        ),
        (PL(), {"known": 0.5}, r"^pl needs class probabilities .*found none; default and majority do without$"),
        (PLEM(), {}, r"^pl-em needs class probabilities .*\(probabilities=, --probabilities\) and found none"),
        (PL(), {}, r"^pl needs class probabilities .* and ground truth of some items .* found none"),
    ],
)
def test_what_is_missing_is_named_with_methods_that_do_without(
    method: Any, shape: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadEvidence, match=message):
        method.fit(crowd(np.random.default_rng(0), 20, **shape)[0])


WRONG: dict[str, Any] = {
    "log_easiness": float("inf"),
    **dict.fromkeys(("accuracy", "beta", "epsilon", "easy_accuracy", "anchor"), 1.0),
    **dict.fromkeys(("off", "diagonal", "tolerance", "share_smoothing", "step_smoothing", "pseudo_items", "hard"), 0.0),
    **dict.fromkeys(("adverse", "skill", "habit", "ability", "ability_sd", "easiness_sd"), 0.0),
    **dict.fromkeys(("shrinkage", "horizon", "easy_sd", "coupling_sd", "answer_sd", "clear"), 0.0),
    **dict.fromkeys(("smoothing", "strength", "rounds", "triples", "groupings", "learning_steps"), -1),
    **dict.fromkeys(("max_iterations", "least_labels", "enough_labels", "least_shared", "own_weights"), 0),
    **dict.fromkeys(("inducing", "batch", "draws", "thin", "right", "wrong"), 0),
    **dict.fromkeys(("learn_from", "begin", "accuracy_at", "approximation", "annotators"), "mine"),
}
"""Setting -> a value that no method takes for it."""

RANGES = [(name, one.name) for name, made in COMBINERS.items() for one in dataclasses.fields(made) if one.name in WRONG]


@pytest.mark.parametrize(("name", "setting"), RANGES)
def test_settings_out_of_range_are_named(name: str, setting: str) -> None:
    with pytest.raises(BadSettings, match=rf"{setting} is {WRONG[setting]!r}; expected "):
        COMBINERS[name](**{setting: WRONG[setting]})


# -- the suite sees what it should ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Forgetful:
    """A majority vote that drops what it is given and says nothing."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        return MajorityVote().fit(replace(evidence, probabilities={}, features=None, sequence=None, graph=None))


@dataclasses.dataclass(frozen=True, slots=True)
class Boastful(Forgetful):
    """The same; says that it uses the models."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth", "probabilities"})


@pytest.mark.parametrize(
    ("combiner", "words"), [(Forgetful(), "no warning says: ignores probabilities"), (Boastful(), "change nothing")]
)
def test_evidence_that_is_dropped_in_silence_is_seen(combiner: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        FACTS["what is not used is named in a warning"](combiner)


@dataclasses.dataclass(frozen=True)
class ByHand:
    """A vote that is written without any help of hitl, by the description of `Combiner` alone."""

    uses: ClassVar[frozenset[str]] = frozenset()
    smoothing: float = 0.5

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        a = used(self, evidence).annotations
        q_nj = np.full((a.n_items, a.n_classes), self.smoothing)
        counts_kjl = np.full((a.n_annotators, a.n_classes, a.n_options), 0.5)
        named = a.label < a.n_classes
        np.add.at(q_nj, (a.item[named], a.label[named]), 1)
        q_nj /= q_nj.sum(axis=1, keepdims=True)
        np.add.at(counts_kjl, (a.annotator, slice(None), a.label), q_nj[a.item])
        pi_kjl = counts_kjl / counts_kjl.sum(axis=2, keepdims=True)
        given, shares = a.labels_per_annotator, q_nj.mean(axis=0)
        people = AnnotatorReport(a.annotators, a.classes, a.options, counts_kjl, pi_kjl, given, shares)
        return Consensus(a.items, a.classes, q_nj, people, shares)


def test_a_combiner_of_ones_own_needs_no_exemption() -> None:
    check_combiner(ByHand())


@dataclasses.dataclass(frozen=True)
class Misnaming(ByHand):
    """Reports other names than it was given."""

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        found = super().fit(evidence)
        people = found.annotators
        return replace(found, annotators=replace(people, names=tuple(f"x{k}" for k in range(len(people.names)))))


@dataclasses.dataclass
class Open:
    """Its settings can be changed."""

    uses: ClassVar[frozenset[str]] = frozenset()

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        return ByHand().fit(evidence)


@dataclasses.dataclass(frozen=True)
class Breaking(ByHand):
    """Fails at an array."""

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        return Consensus(*evidence.annotations.items[:1000][99])


@pytest.mark.parametrize(
    ("combiner", "words"),
    [
        (
            Misnaming(),
            r"^Misnaming: gives a consensus: plain: expected \(report.names, report.options\) == "
            r"\(annotations.annotators, annotations.options\); report.names = \('x0', .*, annotations.annotators = "
            r"\('k0', ",
        ),
        (Forgetful(), r": what is not used is named .*: no warning says: ignores probabilities; begin fit by evidence"),
        (Breaking(), r"^Breaking: gives a consensus: plain: IndexError: tuple index out of range$"),
    ],
)
def test_a_failure_names_the_combiner_the_fact_and_the_values(combiner: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_combiner(combiner)


def test_what_does_not_hold_is_exempt_by_name() -> None:
    facts = {fact: FACTS[fact] for fact in ("names do not matter", "settings are frozen")}
    with pytest.raises(AssertionError, match=r"^Open: settings are frozen: a_setting can be set; expected @dataclass"):
        check(facts, Open(), {})
    check(facts, Open(), {"settings are frozen": "a test"})
    with pytest.raises(AssertionError, match=r"^no fact is called .a start.; expected one of: names do not matter; "):
        check(facts, MajorityVote(), {"a start": "a closed form"})


def test_with_everything_there_is_nothing_to_ask_for() -> None:
    evidence, _ = with_everything()
    assert evidence.probabilities
    assert evidence.known.any()
    assert all(getattr(evidence, kind) is not None for kind in ("features", "sequence", "graph"))
