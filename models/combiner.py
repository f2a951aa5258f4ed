"""The contract of every combiner: evidence in, consensus out; and what it uses of the evidence.

A combiner declares what it uses beside the annotations, and begins its `fit` with `used`:

    @dataclass(frozen=True, slots=True)
    class Loudest:
        uses: ClassVar[frozenset[str]] = frozenset({"truth"})

        def fit(self, evidence, *, start=None):
            evidence = used(self, evidence)

so that who gives it more is warned, once and by name, and that it sees nothing but what it declares.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit, Mixing
from hitl.errors import BadEvidence, BadSettings, IgnoredEvidence
from hitl.evidence import Evidence
from hitl.models.inference.passes import IN_TURN, Engine
from hitl.models.registry import COMBINERS

EVIDENCE = {
    "probabilities": "class probabilities of a model (probabilities=, --probabilities)",
    "truth": "known truth of some items (truth=, --truth)",
    "features": "features of the items (features=, --features)",
    "sequence": "the sequence of the items (sequence=)",
    "graph": "a graph of the items (graph=, --graph, [graph])",
}
"""Each kind of evidence beside the annotations (a field of `Evidence`), and how it is supplied."""


class Combiner(Protocol):
    """Fuses what is known into the best-supported label of every item.

    Settings are the fields of a frozen dataclass; `fit` remembers nothing. `start` is an earlier consensus to
    begin from (usually the same answer, in fewer iterations).

    `uses`: which fields of the evidence it uses beside the annotations. Where it cannot do without some of them, a
    class attribute `needs` names these.

    Example:
        >>> from hitl.models import Combiner, DawidSkene
        >>> method: Combiner = DawidSkene()
        >>> sorted(method.uses)
        ['truth']
    """

    uses: ClassVar[frozenset[str]]

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the evidence and judge all its items."""
        ...


@runtime_checkable
class Applicable(Protocol):
    """A combiner whose result judges items it has not seen.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import DawidSkene
        >>> learned = DawidSkene().fit(Evidence(Annotations.from_matrix([[0, 0], [1, 1]])))
        >>> new = Evidence(Annotations.from_matrix([[1, 1], [0, 0], [1, 1]]))
        >>> DawidSkene().apply(learned, new).labels.tolist()
        [1, 0, 1]
    """

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge the items of `evidence` with what `consensus` learned; nothing is refitted."""
        ...


@dataclass(frozen=True, eq=False)
class FittedToShards:
    """What a method learned from shards.

    Attributes:
        consensus: what was learned, without items.
        beliefs: a shard -> beliefs (N, J) of its items.
    """

    consensus: Consensus
    beliefs: Callable[[Evidence], Floats]

    def judge(self, evidence: Evidence) -> Consensus:
        """What was learned, with the items of this shard."""
        return replace(self.consensus, items=evidence.annotations.items, probabilities=self.beliefs(evidence))


@runtime_checkable
class Shardable(Protocol):
    """A combiner that fits tables in shards, which need not be in memory together.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import MajorityVote
        >>> shards = [Evidence(Annotations.from_matrix(rows)) for rows in ([[0, 0]], [[1, 1]])]
        >>> learned = MajorityVote().fit_shards(shards)
        >>> [learned.judge(shard).labels.tolist() for shard in shards]
        [[0], [1]]
    """

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """Learn from all shards: what `fit` learns from one table of all their items.

        Shards hold disjoint items, and have the same classes, options and annotators with the same codes. Each may be
        made anew whenever it is asked for, and is held no longer than its turn. `engine`: where passes are computed.
        """
        ...


class ApplicableCombiner(Combiner, Applicable, Protocol):
    """A combiner whose result judges items it has not seen."""


def used(combiner: Combiner, evidence: Evidence) -> Evidence:
    """What this combiner uses of the evidence: the first line of every `fit`.

    Warns (IgnoredEvidence) of what is given and not used. Raises BadEvidence where something is missing that the
    combiner needs. Both name methods that would do. Raises BadEvidence for a table, too, which is no evidence yet.
    """
    if not isinstance(evidence, Evidence):
        raise BadEvidence(
            f"{name_of(combiner)}: fit got {type(evidence).__name__}; expected hitl.Evidence, which "
            "Evidence.from_tables(labels) makes of a table, Evidence(annotations) of Annotations; hitl.combine(labels) "
            "takes tables as they are"
        )
    require_given(combiner, evidence, needs_of(combiner))
    ignored = given(evidence) - combiner.uses
    for kind in (kind for kind in EVIDENCE if kind in ignored):
        of = f" of {', '.join(map(repr, evidence.probabilities))}" if kind == "probabilities" else ""
        others = _instead({kind}, "does not", "do not", "so does every other method")
        warnings.warn(f"{name_of(combiner)} ignores the {kind}{of}; {others}", IgnoredEvidence, stacklevel=3)
    return without(evidence, ignored)


def concluded(
    method: Any,
    began: float,
    evidence: Evidence,
    q_nj: Floats,
    people: AnnotatorReport,
    *,
    objective: tuple[float, ...] = (),
    converged: bool = True,
    mixing: Mixing | None = None,
    **learned: Any,
) -> Consensus:
    """The consensus that a fit ends with: beliefs (N, J), annotators, how the fit went, other fields `learned`.

    The class shares are those of the annotators. `began`: what `time.perf_counter()` was when the fit began.
    """
    fit = Fit(name_of(method), asdict(method), objective, converged, time.perf_counter() - began, mixing)
    annotations = evidence.annotations
    return Consensus(annotations.items, annotations.classes, q_nj, people, people.shares, fit=fit, **learned)


def require_given(combiner: Combiner, evidence: Evidence, kinds: frozenset[str]) -> None:
    """Raise BadEvidence, which says what to supply and what does without, where one of these kinds is missing."""
    missing = kinds - given(evidence)
    if missing:
        what = " and ".join(words for kind, words in EVIDENCE.items() if kind in missing)
        others = _instead(given(evidence) & combiner.uses, "does without", "do without", "supply it")
        raise BadEvidence(f"{name_of(combiner)} needs {what} and found none; {others}")


def given(evidence: Evidence) -> frozenset[str]:
    """Which kinds of evidence there are beside the annotations."""
    there = {kind for kind in ("features", "sequence", "graph") if getattr(evidence, kind) is not None}
    there |= {"probabilities"} if evidence.probabilities else set()
    there |= {"truth"} if evidence.known.any() else set()
    return frozenset(there)


def without(evidence: Evidence, kinds: frozenset[str]) -> Evidence:
    """The same evidence less these kinds; itself where it has none of them."""
    gone: dict[str, Any] = {kind: {} if kind == "probabilities" else None for kind in kinds & given(evidence)}
    return replace(evidence, **gone) if gone else evidence


def seen_by(combiner: Combiner, evidence: Evidence) -> Evidence:
    """The evidence without features that this combiner does not use, and that others (a policy, a model) are given."""
    return evidence if "features" in combiner.uses else without(evidence, frozenset({"features"}))


def needs_of(combiner: Combiner | type[Combiner]) -> frozenset[str]:
    """The kinds of evidence that a combiner (or a class of them) cannot do without."""
    needs: frozenset[str] = getattr(combiner, "needs", frozenset())
    return needs


def name_of(combiner: Combiner) -> str:
    """The name of its method; that of its class where it has none."""
    made = type(combiner)
    place = f"{made.__module__}:{made.__qualname__}"
    return next((name for name, listed in COMBINERS.items() if listed == place), made.__qualname__)


def _instead(kinds: AbstractSet[str], one: str, several: str, none: str) -> str:
    """The first two methods that use these kinds and need no others, and a verb; or `none`."""
    names = []
    for name in COMBINERS:
        with suppress(BadSettings):  # a method of another package that cannot be loaded
            made = COMBINERS.load(name)
            if needs_of(made) <= kinds <= getattr(made, "uses", frozenset()):
                names.append(name)
        if len(names) == 2:
            break
    return f"{' and '.join(names)} {one if len(names) == 1 else several}" if names else none
