"""Turn a judgement into operations, and push them. An operation describes a desired state of the platform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import column_of, places_of
from hitl.consensus import Consensus
from hitl.errors import BadInput, BadSettings, HitlError, LeaseLost, PlatformError, Refused, Unreachable, raise_all
from hitl.evidence import Evidence
from hitl.kinds.choices import label_table
from hitl.kinds.kind import answers_per_item, kind_of, layers_by_question
from hitl.metrics import DIGITS
from hitl.plan import Ask, DoneItems, Expired, Plan
from hitl.platform import Connector, Operation, Progress, Receipt, silent
from hitl.tables.table_operation import TableOperation, wanted_table

if TYPE_CHECKING:
    from hitl.annotations import Name, Names
    from hitl.settings import PushSettings
    from hitl.store import Lease, Store

Row = TypeVar("Row", Ask, Expired)


@dataclass(frozen=True)
class Judgement:
    """Evidence and consensus by question, the plan, and the metrics of a run.

    `done`: question that annotators answer -> the items for which it is done; empty if there is only one, because the
    plan lists the items that are done in all questions.
    """

    evidence: Mapping[str, Evidence]
    results: Mapping[str, Consensus]
    plan: Plan
    metrics: Mapping[str, Any] = field(default_factory=dict)
    done: Mapping[str, DoneItems] = field(default_factory=dict)

    def named(self, names: Mapping[str, str]) -> Judgement:
        """Return a copy with other item names. `names`: platform's key -> name (`hitl.project.item_names`)."""
        evidence = {}
        for question, known in self.evidence.items():
            items = _named(known.annotations.items, names)
            evidence[question] = replace(known, annotations=replace(known.annotations, items=items))
        results = {question: named_result(result, names) for question, result in self.results.items()}
        done = {question: _named_done(items, names) for question, items in self.done.items()}
        return replace(self, evidence=evidence, results=results, plan=named_plan(self.plan, names), done=done)


def _named(items: Names, names: Mapping[str, str]) -> Names:
    return tuple(names.get(str(item), item) for item in items)


def named_result(result: Consensus, names: Mapping[str, str]) -> Consensus:
    """Rename the items of a consensus."""
    parts = tuple(replace(part, item=names.get(str(part.item), part.item)) for part in result.parts)
    return replace(result, items=_named(result.items, names), parts=parts)


def named_plan(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Rename the items of a plan."""

    def named(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(replace(row, item=names.get(str(row.item), row.item)) for row in rows)

    done = _named_done(DoneItems.of(plan.done), names)
    return replace(plan, asks=named(plan.asks), done=done, expired=named(plan.expired))


def _named_done(done: DoneItems, names: Mapping[str, str]) -> DoneItems:
    return DoneItems(_named(tuple(done.items), names), done.labels, done.confidence, done.why)


def operations_of(what: PushSettings, store: Store, project: str, judgement: Judgement) -> Iterator[Operation]:
    """Yield operations that describe the desired state of the platform after this run.

    Annotators who had questions in an earlier run and have none now get an empty list. The order comes before the items
    are opened, so that no annotator is served a random item in between. The consensus comes last, because a platform
    may show it to annotators until an order is set.
    """
    plan, evidence = judgement.plan, judgement.evidence
    if what.order:
        order = list(dict.fromkeys(str(ask.item) for ask in plan.asks))
        yield Operation("order", "", {"items": order, "by": store.mark(project)})
    if what.assignments:
        keys = {name: key for key, name in store.annotator_names(project).items()}
        assigned = {
            keys.get(str(who), str(who)): [str(ask.item) for ask in plan.asks_of(who)] for who in plan.annotators
        }
        for operation, _ in store.operations(project, "assign"):
            assigned.setdefault(operation.key, [])
        yield from (Operation("assign", key, {"items": assigned[key]}) for key in sorted(assigned))
    if what.labels_wanted:
        yield _labels_wanted(plan, evidence)
    if what.consensus:
        yield _consensus(store, project, judgement)


def departed(
    store: Store, project: str, judgement: Judgement, operations: Iterable[Operation]
) -> frozenset[tuple[str, str]]:
    """Return (kind, key) of confirmed operations to send again, because the platform's items no longer match them.

    An annotator who answers a task twice, or deletes an answer, changes how many more annotators the task is open for.
    """
    served = store.served(project)
    wanted = [each for each in operations if each.kind == "labels_wanted"]
    if not wanted or not served:
        return frozenset()
    items, _, labels = _standing(judgement.evidence)
    given = dict(zip(map(str, items), labels.tolist(), strict=True))
    for item, n in wanted[0].payload["items"].items():
        so_far = given.get(item, 0)
        if served.get(item, (max(n, so_far, 1), n <= so_far)) != (max(n, so_far, 1), n <= so_far):
            return frozenset({("labels_wanted", "")})
    return frozenset()


def _consensus(store: Store, project: str, judgement: Judgement) -> Operation:
    """Return the operation that shows the consensus: the last one again if the probabilities have hardly changed.

    It is a table unless annotators mark parts of items.
    """
    evidence, results = judgement.evidence, judgement.results
    if any(kind_of(result).of_parts for result in results.values()):
        fresh = Operation("consensus", "", {"questions": consensus_rows(evidence, results)})
    else:
        fresh = TableOperation("consensus", {name: label_table(evidence[name], own) for name, own in results.items()})
    for shown, _ in store.operations(project, "consensus"):
        if isinstance(shown, TableOperation) and isinstance(fresh, TableOperation):
            same = shown.is_close_to(fresh)
        else:
            same = _is_close(shown.payload["questions"], fresh.payload["questions"])
        if same:
            return shown
    return fresh


def _is_close(shown: Any, fresh: Any) -> bool:
    """Return True if two JSON values are equal, apart from the rounding of pushed numbers."""
    if shown == fresh:
        return True
    if isinstance(shown, Mapping) and isinstance(fresh, Mapping):
        return shown.keys() == fresh.keys() and all(_is_close(shown[key], fresh[key]) for key in shown)
    if isinstance(shown, list | tuple) and isinstance(fresh, list | tuple):
        return len(shown) == len(fresh) and all(map(_is_close, shown, fresh))
    return isinstance(shown, float) and isinstance(fresh, float) and abs(shown - fresh) <= 2 * 10.0**-DIGITS


def consensus_rows(
    evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]
) -> dict[str, list[dict[str, Any]]]:
    """Return the payload of the `consensus` operation per question, for any kind of answer."""
    layers = layers_by_question(evidence, results)
    return {question: kind_of(own[0].consensus).rows(own) for question, own in layers.items()}


def _standing(evidence: Mapping[str, Evidence]) -> tuple[Names, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return N items, an (N,) mask of items whose truth is known for every question, and (N,) numbers of annotators."""
    every = np.logical_and.reduce([known.known for known in evidence.values()])
    return next(iter(evidence.values())).annotations.items, every, answers_per_item(evidence)


def _has_labeled(evidence: Mapping[str, Evidence], ask: Ask) -> bool:
    """Return True if the annotator of a question has already labeled its item."""
    for known in evidence.values():
        said = known.annotations
        if ask.annotator in said.annotators and ask.item in said.items:
            n, k = said.items.index(ask.item), said.annotators.index(ask.annotator)
            if k in said.annotator[said.item_start[n] : said.item_start[n + 1]]:
                return True
    return False


def _are_done(names: pa.Array, done: DoneItems) -> npt.NDArray[np.bool_]:
    """Return an (N,) mask of done items."""
    if done.rows is None:
        return np.asarray(pc.is_in(names, value_set=pa.array(list(map(str, done.items)), pa.string())))
    done_n = np.zeros(len(names), dtype=bool)
    done_n[done.rows] = True
    return done_n


def _labels_wanted(plan: Plan, evidence: Mapping[str, Evidence]) -> Operation:
    """Return the operation that sets how many answers items should get in total, over all annotators.

    For an item that is asked about, this is the number of answers it has plus the new questions. For a done item it is
    the number it has, which closes the item. Once the project is done all items are closed, even if they were never
    asked about, because a platform keeps serving open items. Items with ground truth are left out unless they are asked
    about.

    An annotator whose question about an item expired, or who is away, may still have the item open. A platform that
    reserves it for them (Label Studio locks it for a day) would serve it to no other annotator, so one more answer is
    wanted for each of them.
    """
    items, known_n, labels_n = _standing(evidence)
    row, names = places_of(items, (ask.item for ask in plan.asks)), column_of(items)
    done_n = _are_done(names, DoneItems.of(plan.done))
    away = {person.annotator for person in plan.people if person.away}
    gone: dict[Name, set[Name]] = {}
    for expired in plan.expired:
        gone.setdefault(expired.item, set()).add(expired.annotator)
    asked: dict[int, int] = {}
    for ask in plan.asks:
        if ask.sent_back and _has_labeled(evidence, ask):
            continue  # the new answer replaces the old one
        n = row[ask.item]
        held = set() if done_n[n] and not known_n[n] else (away | gone.get(ask.item, set())) - {ask.annotator}
        asked[n] = asked.get(n, int(labels_n[n]) + len(held)) + 1
    told_n = ~known_n & (done_n | (plan.stop is not None))
    wanted_n = np.where(told_n, labels_n, 0).astype(np.int32)
    wanted_n[list(asked)] = list(asked.values())
    told_n[list(asked)] = True
    rows = np.flatnonzero(told_n)
    return TableOperation("labels_wanted", {"": wanted_table(names.take(pa.array(rows)), wanted_n[rows])})


# -- push ------------------------------------------------------------------------------------------------

NEEDS = {"consensus": "order"}
"""Kind -> kind that it needs: it is not sent if an operation of that kind failed.

Without an order, a platform may show the consensus to annotators.
"""

IN_A_ROW = 3
"""Number of unanswered operations in a row after which a push stops, because the platform seems to be down."""


def push(
    lease: Lease,
    store: Store,
    connector: Connector,
    progress: Progress = silent,
    *,
    verify: bool = False,
    by_hand: bool = False,
) -> Iterator[Receipt]:
    """Push every unconfirmed operation in order. Confirm each one when the connector has verified it.

    Operations that a killed process did not confirm are sent again, which changes nothing.

    `verify` also checks confirmed operations: it compares their full content (`Connector.verify`) and fixes what was
    changed on the platform since. The push after one that was cut short does this too. `by_hand` sends only operations
    queued by hand (`hitl.manual_operations`).

    If the platform refuses an operation or does not answer, the push continues with the other operations, except those
    that need the failed one (`NEEDS`). It stops after `IN_A_ROW` unanswered operations in a row. The errors are raised
    at the end, and failed operations are sent again next time, except refused ones that were queued by hand.
    """
    verify = not by_hand and (verify or store.in_doubt(lease))
    pending = store.queued(lease.project) if by_hand else store.pending(lease.project)
    if verify:
        pending = [operation for operation, _ in store.operations(lease.project)]
    if not pending and not verify:
        return
    send = connector.verify if verify else connector.push
    failed, kinds = list[HitlError](), set[str]()
    with _sending(lease, store, connector):
        done = 0
        while done < len(pending):
            kind, end = pending[done].kind, _end_of_kind(pending, done)
            if NEEDS.get(kind) in kinds:
                done = end
                continue
            store.renew(lease)
            try:
                for receipt in send(pending[done:end]):
                    store.confirm(lease, receipt)
                    done += 1
                    progress("push", done, len(pending))
                    yield receipt
                done = end
            except (PlatformError, BadInput, BadSettings) as error:
                failed.append(_withdrawn(lease, store, pending[min(done, end - 1)], error))
                kinds.add(kind)
                done = min(done + 1, end)
            if len(failed) >= IN_A_ROW and all(isinstance(error, Unreachable) for error in failed[-IN_A_ROW:]):
                break
        if any(isinstance(error, Unreachable) for error in failed):
            store.renew(lease)  # a request may be in flight: if another run took over, LeaseLost makes it verify all
        else:
            store.end_push(lease, verified=verify and not failed)
    raise_all(failed)


def push_collecting_errors(
    lease: Lease,
    store: Store,
    connector: Connector,
    progress: Progress,
    failed: list[HitlError],
    *,
    by_hand: bool = False,
) -> tuple[Receipt, ...]:
    """Push, add the error to `failed` if there is one, and return the receipts."""
    receipts = []
    try:
        for receipt in push(lease, store, connector, progress, by_hand=by_hand):
            receipts.append(receipt)
    except (PlatformError, BadInput, BadSettings) as error:
        failed.append(error)
    return tuple(receipts)


@contextmanager
def _sending(lease: Lease, store: Store, connector: Connector) -> Iterator[None]:
    """Block writes once the lease is lost. The next push then verifies, because a request may be in flight."""

    def may_write() -> float:
        store.renew(lease)
        return lease.seconds

    store.begin_push(lease)
    connector.fence(may_write)
    try:
        yield
    except LeaseLost:
        store.doubt(lease)
        raise
    finally:
        connector.fence(None)


def _end_of_kind(pending: list[Operation], first: int) -> int:
    """Return the index where the next kind begins. Operations of one kind are sent together, to allow batches."""
    return next((n for n in range(first, len(pending)) if pending[n].kind != pending[first].kind), len(pending))


def _withdrawn(lease: Lease, store: Store, operation: Operation, error: HitlError) -> HitlError:
    if isinstance(error, Unreachable) or not store.withdraw(lease, operation):
        return error
    return Refused(f"{error}; not retried: {operation.subject}. Fix this, then run the command again")
