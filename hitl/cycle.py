"""One cycle: pull what is new, combine, plan, push. Each step is safe to repeat, and so is the whole.

    pull    pages -> store                              rows and the cursor behind them in one transaction
    judge   store -> evidence -> consensus -> plan      a pure function of what is stored
    record  consensus, plan, operations -> store        in one transaction; unchanged operations stay confirmed
    push    outbox -> platform                          verified there, then marked

A crash anywhere loses nothing: the next cycle pulls on from the cursor, comes to the same plan from the same
evidence, and sends what was not confirmed. Combiners start cold, so that the result depends on the evidence alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from hitl.active.pending.outstanding import HOUR, next_plan
from hitl.active.registry import policy
from hitl.active.stopping.pool_state import PoolState
from hitl.annotations import Annotations, Name
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput, BadSettings, Busy, HitlError, StoreError
from hitl.evidence import Evidence
from hitl.exchange import Connector, Operation, Progress, Question, Receipt
from hitl.metrics import DIGITS, metrics_of
from hitl.models.registry import combiner
from hitl.plan import Plan
from hitl.settings import PushSettings, Settings

if TYPE_CHECKING:
    from hitl.store import Lease, Store

_one_fit = Lock()
"""Compiled kernels may end the process when two threads run them at once (numba without OpenMP or TBB)."""


@dataclass(frozen=True)
class PullSummary:
    """What a pull brought."""

    items: int = 0
    annotations: int = 0
    changed: int = 0
    deleted: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """What the stored evidence says: evidence and consensus by question, and the plan that follows."""

    evidence: Mapping[str, Evidence]
    results: Mapping[str, Consensus]
    plan: Plan
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CycleReport:
    """What one cycle did."""

    pulled: PullSummary
    judgement: Judgement
    receipts: tuple[Receipt, ...]

    @property
    def resumed(self) -> bool:
        """Whether it only pushed what a cycle killed before had recorded, and looked at nothing new."""
        return not self.judgement.evidence

    @property
    def changed(self) -> int:
        """How much had to be changed on the platform (0: it was as planned)."""
        return sum(receipt.changed for receipt in self.receipts)


def silent(what: str, done: int, total: int | None) -> None:
    """A Progress that shows nothing."""


def run(
    settings: Settings,
    store: Store,
    connector: Connector,
    progress: Progress = silent,
    crew: Crew | None = None,
    *,
    due: str | None = None,
    now: float | None = None,
) -> CycleReport:
    """One whole cycle under the project's lease. Raises Busy when another cycle holds it.

    `crew`: who can be asked just now; default: the crew of the settings. `now`: see `judge`.
    `due`: names the run it is for, once for all. When a cycle was recorded for it already (and then the process was
    killed), only what was not pushed yet is pushed; the report then tells of the last recorded cycle, without evidence.
    """
    with store.lease(settings.name) as lease, _noted(store, lease):
        judgement = None if due is None else _recorded(store, settings.name, due)
        pulled = PullSummary()
        if judgement is None:
            pulled = pull(lease, store, connector, progress)
            with _one_fit:
                judgement = judge(settings, store, connector.questions(), progress, crew, now)
            if due is not None:
                known = {"due": due, "annotations": store.counts(settings.name)["annotations"]}
                judgement = replace(judgement, metrics={**judgement.metrics, **known})
            record(lease, settings, store, judgement)
            progress("recorded", 1, 1)
        receipts = tuple(push(lease, store, connector, progress))
    return CycleReport(pulled, judgement, receipts)


@contextmanager
def _noted(store: Store, lease: Lease) -> Iterator[None]:
    """Keeps why a cycle failed for `hitl status`, until one does not.

    Not where the store itself failed, which could not keep it, or where another cycle has taken over.
    """
    try:
        yield
    except (HitlError, OSError) as error:
        if not isinstance(error, StoreError | Busy):
            with suppress(HitlError):
                store.note_failure(lease, error)
        raise
    store.note_failure(lease, None)


def _recorded(store: Store, project: str, due: str) -> Judgement | None:
    """The last recorded judgement, if a cycle was recorded for this due run."""
    if not store.recorded(project, due):
        return None
    last, latest = store.last_cycle(project), store.latest(project)
    return None if last is None or latest is None else Judgement({}, *latest, last.metrics)


def pull(lease: Lease, store: Store, connector: Connector, progress: Progress = silent) -> PullSummary:
    """Pull everything new, page by page, each saved with the cursor behind it."""
    items = annotations = changed = deleted = 0
    problems: list[str] = []
    for page in connector.pull(store.cursor(lease.project)):
        summary = store.save_page(lease, page)
        items += len(page.items)
        annotations += len(page.annotations)
        changed += summary.changed
        deleted += summary.deleted
        problems += page.problems
        progress("pull", items, page.total)
    return PullSummary(items, annotations, changed, deleted, tuple(problems))


def judge(
    settings: Settings,
    store: Store,
    questions: tuple[Question, ...],
    progress: Progress = silent,
    crew: Crew | None = None,
    now: float | None = None,
) -> Judgement:
    """Evidence to consensus to plan, from what is stored; writes nothing.

    The last recorded plan is part of what is stored: its unanswered questions stay or expire at `now` (seconds since
    the epoch; default: the time it is).
    """
    evidence = stored_evidence(store, settings.name, questions)
    method = combiner(settings.combine.method, **settings.combine.options)
    results = {}
    for position, (name, known) in enumerate(evidence.items(), start=1):
        results[name] = method.fit(known)
        progress("combine", position, len(evidence))
    crew, budget, chooses = crew or crew_of(settings, store), budget_of(settings), settings.policy
    pool = PoolState.of([(evidence[name], results[name]) for name in evidence], budget)
    asks = policy(chooses.name, **chooses.options)
    now, expire = time.time() if now is None else now, settings.crew.expire_hours * HOUR
    plan = next_plan(asks, pool, crew, budget, store.plan(settings.name), now, expire)
    progress("plan", 1, 1)
    return Judgement(evidence, results, plan, metrics_of(pool, plan, crew, budget))


def record(lease: Lease, settings: Settings, store: Store, judgement: Judgement) -> int:
    """Store the judgement and what follows from it for the platform, in one transaction; the cycle's number."""
    from hitl.store import CycleRecord

    operations = tuple(operations_of(settings.push, store, lease.project, judgement))
    metrics = judgement.metrics
    return store.record_cycle(
        lease, CycleRecord(judgement.results, judgement.plan, operations, metrics, metrics.get("due"))
    )


def push(
    lease: Lease, store: Store, connector: Connector, progress: Progress = silent, *, verify: bool = False
) -> Iterator[Receipt]:
    """Make the platform as planned: every operation not yet confirmed, in order, each marked when verified.

    `verify` looks at the confirmed ones again too, and mends what somebody has changed on the platform.
    """
    pending = store.pending(lease.project)
    if verify:
        pending = [operation for operation, _ in store.operations(lease.project)]
    for position, operation in enumerate(pending, start=1):
        store.check(lease)
        for receipt in connector.push([operation]):
            progress("pushed", position, len(pending))
            store.confirm(lease, receipt)
            progress("push", position, len(pending))
            yield receipt


# -- evidence ----------------------------------------------------------------------------------------------


def stored_evidence(store: Store, project: str, questions: tuple[Question, ...]) -> dict[str, Evidence]:
    """Question name -> evidence, all over the same items. Raises BadInput when nothing was pulled yet."""
    items = tuple(store.items(project).column("item").to_pylist())
    if not items:
        raise BadInput(f"project {project!r}: no items stored; run `hitl pull` first, or add items on the platform")
    names = annotator_names(store, project)
    return {question.name: _evidence_of(store, project, question, items, names) for question in questions}


def _evidence_of(
    store: Store, project: str, question: Question, items: tuple[str, ...], names: Mapping[str, str]
) -> Evidence:
    table = store.annotations(project, question.name)
    people = [None if key is None else names.get(key, key) for key in table.column("annotator").to_pylist()]
    position = table.column_names.index("annotator")
    table = table.set_column(position, "annotator", pa.array(people, pa.string()))
    annotations = Annotations.from_frame(
        table, items=items, classes=question.classes, options=question.options, time="time", duration="duration"
    )
    place = {name: code for code, name in enumerate(question.classes)}
    row = {key: code for code, key in enumerate(items)}
    truth = np.full(len(items), -1, np.int32)
    gold = store.gold(project, question.name)
    for key, label in zip(gold.column("item").to_pylist(), gold.column("label").to_pylist(), strict=True):
        if label in place:
            truth[row[key]] = place[label]
    probabilities = {
        model: _aligned(predicted, row, question)
        for model, predicted in store.predictions(project, question.name).items()
    }
    return Evidence(annotations, probabilities, truth=truth)


def _aligned(table: pa.Table, row: Mapping[str, int], question: Question) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = np.full((len(row), len(question.classes)), np.nan)
    rows = [row[key] for key in table.column("item").to_pylist()]
    for code, name in enumerate(question.classes):
        column = f"p_{name}"
        known = column in table.column_names
        values[rows, code] = np.nan_to_num(np.asarray(table.column(column).cast("float64"))) if known else 0.0
    return values


def annotator_names(store: Store, project: str) -> dict[str, str]:
    """Platform key -> shown name; the key is added where two people share a name."""
    table = store.annotators(project)
    names = dict(zip(table.column("key").to_pylist(), table.column("name").to_pylist(), strict=True))
    count: dict[str, int] = {}
    for name in names.values():
        count[name] = count.get(name, 0) + 1
    return {key: name if count[name] == 1 else f"{name} ({key})" for key, name in names.items()}


def crew_of(settings: Settings, store: Store) -> Crew:
    """The crew of the settings; whoever skipped an item is not asked about it again."""
    crew = settings.crew
    names = annotator_names(store, settings.name)
    skips = store.skips(settings.name)
    _refuse_shared_names(crew.annotators, names)
    pairs = zip(skips.column("annotator").to_pylist(), skips.column("item").to_pylist(), strict=True)
    never = frozenset((names.get(person, person), item) for person, item in pairs)
    return Crew(
        tuple(crew.annotators),
        cast(Mapping[Name, int], crew.capacities),
        crew.capacity,
        never,
        cost=cast(Mapping[Name, float], crew.costs),
        default_cost=crew.cost,
        skills={name: frozenset(skills) for name, skills in crew.skills.items()},
        needs={} if crew.needs is None else needs_of(store.items(settings.name), crew.needs),
    )


def needs_of(items: pa.Table, field: str) -> dict[Name, frozenset[str]]:
    """Item -> the skills that this field of its data names: one value or a list; items without it need none."""
    needs: dict[Name, frozenset[str]] = {}
    for key, data in zip(items.column("item").to_pylist(), items.column("data").to_pylist(), strict=True):
        value = json.loads(data).get(field)
        values = value if isinstance(value, list) else [value]
        wanted = frozenset(str(one) for one in values if one not in (None, ""))
        if wanted:
            needs[key] = wanted
    return needs


def _refuse_shared_names(crew: tuple[str, ...], names: Mapping[str, str]) -> None:
    """Raise BadSettings for a name that several people share: they are told apart as "name (key)"."""
    for name in crew:
        called = [shown for key, shown in names.items() if shown == f"{name} ({key})"]
        if called:
            raise BadSettings(f"crew.annotators: several people are called {name!r}; expected {' or '.join(called)}")


def budget_of(settings: Settings) -> Budget:
    """The budget of the settings."""
    return Budget(**settings.budget.model_dump())


# -- operations --------------------------------------------------------------------------------------------


def operations_of(what: PushSettings, store: Store, project: str, judgement: Judgement) -> Iterator[Operation]:
    """What the platform should look like after this cycle; a function of judgement and crew alone.

    The order comes before the items are opened, so that nobody is served an item at random in between; the consensus
    last, because a platform may show every prediction it has until an order says which.
    """
    plan, evidence = judgement.plan, judgement.evidence
    if what.order:
        yield Operation("order", "", {"items": list(dict.fromkeys(str(ask.item) for ask in plan.asks))})
    if what.assignments:
        yield from _assignments(store, project, plan)
    if what.labels_wanted:
        yield Operation("labels_wanted", "", {"items": {**_closing(judgement), **_labels_wanted(plan, evidence)}})
    if what.consensus:
        yield _consensus(store, project, judgement)


def _consensus(store: Store, project: str, judgement: Judgement) -> Operation:
    """The consensus to show; the one shown already where nothing but the last digits differ."""
    fresh = Operation("consensus", "", {"questions": _consensus_rows(judgement)})
    for shown, _ in store.operations(project):
        if shown.kind == "consensus" and _same_consensus(shown.payload["questions"], fresh.payload["questions"]):
            return shown
    return fresh


def _same_consensus(shown: Mapping[str, list[dict[str, Any]]], fresh: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Whether items and labels are equal and all probabilities equal to the digits that are pushed."""

    def named(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(row["item"], row["label"], *row["probabilities"]) for row in rows]

    def numbers(rows: list[dict[str, Any]]) -> list[float]:
        return [p for row in rows for p in (row["confidence"], *row["probabilities"].values())]

    return shown.keys() == fresh.keys() and all(
        named(shown[name]) == named(fresh[name])
        and np.allclose(numbers(shown[name]), numbers(fresh[name]), rtol=0, atol=2 * 10.0**-DIGITS)
        for name in fresh
    )


def _consensus_rows(judgement: Judgement) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, result in judgement.results.items():
        known = judgement.evidence[name]
        supported = (known.annotations.labels_per_item > 0) | known.known
        for predicted in known.probabilities.values():
            supported |= ~np.isnan(predicted[:, 0])
        rows[name] = [
            {
                "item": str(result.items[n]),
                "label": str(result.classes[result.labels[n]]),
                "confidence": round(float(result.confidence[n]), DIGITS),
                "probabilities": {
                    str(label): round(float(p), DIGITS)
                    for label, p in zip(result.classes, result.probabilities[n], strict=True)
                },
            }
            for n in np.flatnonzero(supported)
        ]
    return rows


def _assignments(store: Store, project: str, plan: Plan) -> Iterator[Operation]:
    keys = {name: key for key, name in annotator_names(store, project).items()}
    planned = {name: [str(ask.item) for ask in plan.asks_of(name)] for name in plan.annotators}
    assigned = {keys.get(str(name), str(name)): items for name, items in planned.items()}
    for operation, _ in store.operations(project):
        if operation.kind == "assign":
            assigned.setdefault(operation.key, [])
    for key in sorted(assigned):
        yield Operation("assign", key, {"items": assigned[key]})


def _closing(judgement: Judgement) -> dict[str, int]:
    """When the project is done: the answers that its items have, which closes them all, also those never asked about.

    A platform goes on serving what is open. Items of known truth are left as they are, as in `_labels_wanted`.
    """
    if judgement.plan.stop is None:
        return {}
    known = next(iter(judgement.evidence.values()))
    labels = known.annotations.labels_per_item
    return {str(item): int(labels[n]) for n, item in enumerate(known.annotations.items) if not known.known[n]}


def _labels_wanted(plan: Plan, evidence: Mapping[str, Evidence]) -> dict[str, int]:
    """Answers each asked item should get in all, and the answers that done items have (which closes them).

    Whoever let a question about it expire, or is away, may still have the item open. A platform that keeps it for them
    (Label Studio locks it for a day) would serve it to nobody else: there has to be room for them too.
    """
    known = next(iter(evidence.values()))
    labels = known.annotations.labels_per_item
    row = {name: n for n, name in enumerate(known.annotations.items)}
    wanted = {str(done.item): int(labels[row[done.item]]) for done in plan.done if not known.known[row[done.item]]}
    away = {person.annotator for person in plan.people if person.away}
    gone: dict[Name, set[Name]] = {}
    for expired in plan.expired:
        gone.setdefault(expired.item, set()).add(expired.annotator)
    for ask in plan.asks:
        key = str(ask.item)
        held = (away | gone.get(ask.item, set())) - {ask.annotator}
        wanted[key] = wanted.get(key, int(labels[row[ask.item]]) + len(held)) + 1
    return wanted
