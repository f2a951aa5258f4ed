"""Interface of combiners: evidence in, consensus out.

A combiner declares in `uses` which kinds of evidence it uses besides the annotations. Its `fit` first calls `used`,
which removes all other kinds and warns about them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit, Mixing
from hitl.errors import BadEvidence, BadSettings, IgnoredEvidence
from hitl.evidence import Evidence
from hitl.models.inference.engine import Shards, Table
from hitl.models.methods import COMBINERS
from hitl.tables.limits import memory_limit, readable

EVIDENCE = {
    "probabilities": "class probabilities of a model (probabilities=, --probabilities)",
    "truth": "ground truth of some items (truth=, --truth)",
    "features": "features of the items (features=, --features)",
    "sequence": "the sequence of the items (sequence=)",
    "graph": "a graph of the items (graph=, --graph, [graph])",
}
"""Kinds of evidence besides the annotations (fields of `Evidence`), and how to supply each."""

TABLES, BELIEFS, LABELS = 6, 6, 6
"""Arrays (K, L, J), (N, J) and (M,) that a fit has at a time, unless a method has `tables` and `beliefs`. Measured."""


class Combiner(Protocol):
    """Method that fuses all evidence into the best-supported label of every item.

    Write one as a frozen dataclass whose fields are its settings; `fit` keeps no state. It returns a `Consensus` of all
    `evidence.annotations.items` with (N, J) probabilities of the `classes`, and an `AnnotatorReport`. `hitl.combine`
    takes an instance, `hitl combine --method` also `file.py:Class`; `hitl.testing.check_combiner` checks it. `start` is
    an earlier consensus to begin from. It leads to the same result, usually in fewer iterations, or is ignored.

    `uses` names the fields of the evidence that the method uses besides the annotations. The optional class attribute
    `needs` names those that it requires. A method that also fits `Shards` sets `fits_shards: ClassVar[bool] = True`.
    From shards, `fit` returns a consensus without items, and `apply` predicts the items shard by shard. The optional
    `tables` and `beliefs`, or `memory`, say how much memory a fit takes (`memory_of`).

    Example:
        >>> import time
        >>> from dataclasses import dataclass
        >>> from typing import ClassVar
        >>> import hitl
        >>> from hitl.models.combiner import concluded, used
        >>> from hitl.models.majority import report_of_votes
        >>> from hitl.models.numerics.votes import voted
        >>> @dataclass(frozen=True)
        ... class SquaredVotes:
        ...     uses: ClassVar[frozenset[str]] = frozenset({"truth"})
        ...     power: float = 2.0
        ...
        ...     def fit(self, evidence, *, start=None):
        ...         began = time.perf_counter()
        ...         evidence = used(self, evidence)  # without what it does not use, with a warning
        ...         q_nj = voted(evidence) ** self.power  # (N, J) shares of the votes; ground truth stays 0 and 1
        ...         q_nj /= q_nj.sum(axis=1, keepdims=True)
        ...         people = report_of_votes(evidence.annotations, q_nj)
        ...         return concluded(self, began, evidence, q_nj, people)
        >>> labels = {"item": ["a", "a", "b"], "annotator": ["ann", "bob", "ann"], "label": ["cat", "cat", "dog"]}
        >>> hitl.combine(labels, method=SquaredVotes()).frame()["confidence"].round(2).tolist()
        [0.96, 0.9]
        >>> from hitl.testing import check_combiner
        >>> check_combiner(SquaredVotes())
    """

    uses: ClassVar[frozenset[str]]

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the evidence and predict all its items."""


@runtime_checkable
class Applicable(Protocol):
    """Combiner whose result can predict new items.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> learned = models.DawidSkene().fit(Evidence(Annotations.from_matrix([[0, 0], [1, 1]])))
        >>> new = Evidence(Annotations.from_matrix([[1, 1], [0, 0], [1, 1]]))
        >>> models.DawidSkene().apply(learned, new).labels.tolist()
        [1, 0, 1]
    """

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict the items of `evidence` with the parameters of `consensus`; nothing is refitted."""


class ShardsCombiner(Applicable, Protocol):
    """Combiner that fits `Shards` too."""

    uses: ClassVar[frozenset[str]]
    fits_shards: ClassVar[bool]

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Learn from a table and predict its items, or learn from shards."""


class ApplicableCombiner(Combiner, Applicable, Protocol):
    """Combiner that can be fitted and can predict new items."""


def used(combiner: Combiner, evidence: Evidence | Shards, stacklevel: int = 3) -> Evidence:
    """Return the evidence without the kinds that this combiner does not use. Every `fit` calls this first.

    Warn (IgnoredEvidence) about removed kinds. Raise BadEvidence if a required kind is missing, BadSettings for shards.
    Warnings and errors name methods that would work. Also raise BadEvidence for anything else, such as a table.
    """
    if isinstance(evidence, Shards):
        raise BadSettings(f"method {name_of(combiner)} needs all labels in memory")
    if not isinstance(evidence, Evidence):
        raise BadEvidence(
            f"{name_of(combiner)}: fit got {type(evidence).__name__}; expected hitl.Evidence, which "
            "Evidence.from_tables(labels) makes of a table, Evidence(annotations) of Annotations; hitl.combine(labels) "
            "takes tables as they are"
        )
    require_given(combiner, evidence, needs_of(combiner))
    require_memory(combiner, evidence)
    ignored = given(evidence) - combiner.uses
    for kind in (kind for kind in EVIDENCE if kind in ignored):
        of = f" of {', '.join(map(repr, evidence.probabilities))}" if kind == "probabilities" else ""
        others = _instead({kind}, "does not", "do not", "so does every other method")
        message = f"{name_of(combiner)} ignores the {kind}{of}; {others}"
        warnings.warn(message, IgnoredEvidence, stacklevel=stacklevel)
    return without(evidence, ignored)


def used_shards(combiner: Combiner, evidence: Evidence | Shards) -> Shards:
    """Return evidence or shards without the kinds that this combiner does not use, as shards.

    A `fit` that accepts both calls this first. Raise BadEvidence unless some shard has all required kinds.
    """
    if not isinstance(evidence, Shards) or not fits_shards(combiner):
        return Table(used(combiner, evidence, stacklevel=4))
    needs = needs_of(combiner)
    complete = (shard for shard in evidence.tables if needs <= given(shard))
    used(combiner, next(complete, evidence.tables[0]), stacklevel=4)
    return Shards(_UsedTables(evidence.tables, combiner.uses), evidence.engine)


def fits_shards(combiner: Any) -> TypeGuard[ShardsCombiner]:
    """Return True if a combiner, or a class of combiners, can fit `Shards`."""
    return bool(getattr(combiner, "fits_shards", False))


@dataclass(frozen=True, eq=False)
class _UsedTables(Sequence[Evidence]):
    """Tables without the kinds of evidence that a method does not use."""

    tables: Sequence[Evidence]
    uses: frozenset[str]

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, i: Any) -> Any:
        evidence = self.tables[i]
        return without(evidence, given(evidence) - self.uses)


def concluded(
    method: Any,
    began: float,
    evidence: Evidence | Shards,
    q_nj: Floats,
    people: AnnotatorReport,
    *,
    objective: tuple[float, ...] = (),
    converged: bool = True,
    mixing: Mixing | None = None,
    **learned: Any,
) -> Consensus:
    """Build the consensus of a fit; a fit to several shards has no items.

    Args:
        method: combiner that was fitted.
        began: `time.perf_counter()` at the start of the fit.
        evidence: evidence of the fit.
        q_nj: (N, J) class probabilities.
        people: report on the annotators, whose class shares become those of the consensus.
        objective, converged, mixing: as in `Fit`.
        learned: other fields of `Consensus`.
    """
    fit = Fit(name_of(method), asdict(method), objective, converged, time.perf_counter() - began, mixing)
    items, classes = evidence.annotations.items, evidence.annotations.classes
    if isinstance(evidence, Shards):
        people = replace(people, labels=evidence.size.labels_k)
        items = () if evidence.table is None else items
    learned["ordered"] = evidence.annotations.ordered
    return Consensus(items, classes, q_nj, people, people.shares, fit=fit, **learned)


def require_given(combiner: Combiner, evidence: Evidence, kinds: frozenset[str]) -> None:
    """Raise BadEvidence if one of these kinds is missing. The message says what to supply, or which method to use."""
    missing = kinds - given(evidence)
    if missing:
        what = " and ".join(words for kind, words in EVIDENCE.items() if kind in missing)
        others = _instead(given(evidence) & combiner.uses, "does without", "do without", "supply it")
        raise BadEvidence(f"{name_of(combiner)} needs {what} and found none; {others}")


def require_memory(combiner: Combiner, evidence: Evidence) -> None:
    """Raise BadEvidence if a fit would take more memory than there is. The message names a method that fits."""
    size, most = memory_of(combiner, evidence), memory_limit()
    if size <= most:
        return
    annotations = evidence.annotations
    n, k, j = annotations.n_items, annotations.n_annotators, annotations.n_classes
    others = ("variational-gpc-ma", "default") if "features" in needs_of(combiner) else ("default",)
    needed = {name: memory_of(COMBINERS.make(name, {}), evidence) for name in others}
    fits = next((f"{name} takes {readable(needed[name])}" for name in others if needed[name] <= most), None)
    fits = fits or "no method takes less: merge rare classes"
    raise BadEvidence(
        f"{name_of(combiner)} would take {readable(size)} of memory for {n:,} items, {k:,} annotators and {j:,} "
        f"classes; expected at most {readable(most)} (limits.memory, or what is available); {fits}"
    )


def memory_of(combiner: Any, evidence: Evidence) -> int:
    """Estimate the bytes that a fit takes at its peak. A method may have a function `memory` of its own.

    Otherwise, `tables` and `beliefs` are the numbers of arrays (K, L, J) and (N, J) that it has at a time.
    """
    own = getattr(combiner, "memory", None)
    if own is not None:
        return int(own(evidence))
    tables, beliefs = getattr(combiner, "tables", TABLES), getattr(combiner, "beliefs", BELIEFS)
    return array_bytes(evidence.annotations, tables, beliefs)


def array_bytes(annotations: Annotations, tables: float, beliefs: float) -> int:
    """Return the bytes of this many arrays (K, L, J) and (N, J), and of `LABELS` (M,)."""
    cells = tables * annotations.n_annotators * annotations.n_options + beliefs * annotations.n_items
    return int(8 * (annotations.n_classes * cells + LABELS * len(annotations)))


def given(evidence: Evidence) -> frozenset[str]:
    """Return the kinds of evidence that are present besides the annotations."""
    there = {kind for kind in ("features", "sequence", "graph") if getattr(evidence, kind) is not None}
    there |= {"probabilities"} if evidence.probabilities else set()
    there |= {"truth"} if evidence.known.any() else set()
    return frozenset(there)


def without(evidence: Evidence, kinds: frozenset[str]) -> Evidence:
    """Return the evidence without these kinds; the same object if it has none of them."""
    gone: dict[str, Any] = {kind: {} if kind == "probabilities" else None for kind in kinds & given(evidence)}
    return replace(evidence, **gone) if gone else evidence


def seen_by(combiner: Combiner, evidence: Evidence) -> Evidence:
    """Return the evidence without features if this combiner does not use them.

    Unlike `used` this does not warn, because the features may be there for a policy or a classifier.
    """
    return evidence if "features" in combiner.uses else without(evidence, frozenset({"features"}))


def needs_of(combiner: Combiner | type[Combiner]) -> frozenset[str]:
    """Return the kinds of evidence that a combiner, or a class of combiners, requires."""
    needs: frozenset[str] = getattr(combiner, "needs", frozenset())
    return needs


def has_basis(evidence: Evidence, consensus: Consensus) -> npt.NDArray[np.bool_]:
    """Return (N,) True for items whose label rests on an answer, a prediction, ground truth, or related items.

    A method relates items by a graph, a sequence or features. Otherwise an item that nobody has answered has the
    frequencies of the classes as its probabilities, and its most probable class is not a label.
    """
    method = consensus.fit.method
    if method not in COMBINERS or COMBINERS.load(method).uses & {"graph", "sequence", "features"}:
        return np.ones(len(consensus.items), dtype=bool)
    return evidence.supported


def name_of(combiner: Combiner) -> str:
    """Return the name under which a combiner is registered, or the name of its class if it is not."""
    made = type(combiner)
    place = f"{made.__module__}:{made.__qualname__}"
    return next((name for name, listed in COMBINERS.items() if listed == place), made.__qualname__)


def _instead(kinds: AbstractSet[str], one: str, several: str, none: str) -> str:
    """Return the names of up to two methods that use these kinds and need no others, with a verb.

    The verb is `one` for one method, `several` for two. Without any method, return `none`.
    """
    names = []
    for name in COMBINERS:
        with suppress(BadSettings):  # a method of another package that cannot be loaded
            made = COMBINERS.load(name)
            if needs_of(made) <= kinds <= getattr(made, "uses", frozenset()):
                names.append(name)
        if len(names) == 2:
            break
    return f"{' and '.join(names)} {one if len(names) == 1 else several}" if names else none
