"""One run: pull, combine, plan and push. Each step is safe to repeat, and so is the whole run.

    pull    pages -> store                              rows and their cursor in one transaction
    embed   items -> features -> store                  new and changed items, if `[features]` is set
    learn   labels -> a model -> predictions -> store   if `[learn]` is set and enough labels are new
    judge   store -> evidence -> consensus -> plan      a pure function of the stored data
    record  consensus, plan, operations -> store        in one transaction; unchanged operations stay confirmed
    push    outbox -> platform                          verified there, then confirmed

Operations queued by hand (new items, ground truth) are pushed first. A crash loses nothing: the next run continues from
the cursor, computes the same plan from the same evidence, and sends unconfirmed operations. Combiners start cold, so
the result depends only on the evidence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hitl import inputs_digest
from hitl.active.pending.outstanding import HOUR, next_plan
from hitl.active.pending.rework import with_rework, without_rework
from hitl.active.registry import policy
from hitl.active.stopping.pool_state import PoolState
from hitl.crew import Crew
from hitl.errors import (
    BadInput,
    BadSettings,
    BadTable,
    Busy,
    HitlError,
    LeaseLost,
    PlatformError,
    Refused,
    StoreError,
    Unreachable,
    raise_all,
)
from hitl.events import build_events
from hitl.formatting import subject_of
from hitl.learning import features, training
from hitl.metrics import metrics_of
from hitl.models.analysis.audited_agreement import audited_agreement
from hitl.models.predictors.features import describe_left_out
from hitl.operations import Judgement, departed, end_of_kind, operations_of
from hitl.platform import (
    Connector,
    Operation,
    Pages,
    Progress,
    PullSummary,
    Question,
    Receipt,
    silent,
)
from hitl.project import (
    annotator_names,
    budget_of,
    combined,
    crew_of,
    forget,
    given_evidence,
    ineffective,
    item_names,
    lease_seconds,
    one_fit,
    orders_of_others,
    reachable,
    require_one_name,
    require_place,
    settle,
    stored_evidence,
    usable,
)
from hitl.settings import Settings
from hitl.tables.limits import within

if TYPE_CHECKING:
    from hitl.store import CycleSummary, Lease, Store
    from hitl.store.model_predictions import Training


class _Changing:
    """Base of reports with receipts from the platform."""

    receipts: tuple[Receipt, ...]

    @property
    def changed(self) -> int:
        """Number of changes made on the platform (0: it was as planned)."""
        return sum(receipt.changed for receipt in self.receipts)


@dataclass(frozen=True)
class CycleReport(_Changing):
    """Result of one run."""

    pulled: PullSummary
    judgement: Judgement
    receipts: tuple[Receipt, ...]
    pages: Pages = Pages()
    learned: Mapping[str, Training] = field(default_factory=dict)

    @property
    def resumed(self) -> bool:
        """True if it only pushed the recorded results of a killed run, without reading new data."""
        return not self.judgement.evidence


@dataclass(frozen=True)
class Unchanged(_Changing):
    """Result of a run that found no changes: the `last` result is reused."""

    pulled: PullSummary
    last: CycleSummary
    receipts: tuple[Receipt, ...]
    pages: Pages = Pages()

    resumed: ClassVar[bool] = False
    """Always False: the run has read all new data."""


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
    """Run once under the project's lease. Raises Busy if another run holds it.

    `crew`: who can be asked; default: the crew of the settings. `now`: see `judge`. `due`: name of the scheduled run.
    If one of that name is recorded already, only pending operations are pushed, and the report covers the last run,
    without evidence.
    """
    with _steps(settings, store, connector, progress) as steps:
        queued = steps.push(by_hand=True)  # push first, so that the pull reads it back
        return steps.resume(due, queued) or steps.judge_and_push(steps.pull(), queued, crew, due, now)


def run_if_changed(
    settings: Settings,
    store: Store,
    connector: Connector,
    progress: Progress = silent,
    *,
    due: str | None = None,
    now: float | None = None,
) -> CycleReport | Unchanged:
    """Run once, but reuse the last result if none of its inputs has changed.

    Unconfirmed operations are pushed in any case.
    """
    now = time.time() if now is None else now
    with _steps(settings, store, connector, progress) as steps:
        queued = steps.push(by_hand=True)
        resumed = steps.resume(due, queued)
        if resumed is not None:
            return resumed
        pulled, last = steps.pull(), store.last_cycle(settings.name)
        if last is None or not steps.unchanged(last, pulled, now):
            return steps.judge_and_push(pulled, queued, None, due, now)
        return steps.finish_unchanged(last, pulled, queued)


@dataclass(frozen=True)
class _Steps:
    """The steps of one run, under its lease."""

    lease: Lease
    settings: Settings
    store: Store
    connector: Connector
    progress: Progress
    refused: list[HitlError] = field(default_factory=list)

    def pull(self) -> PullSummary:
        return pull(self.lease, self.store, self.connector, self.progress)

    def push(self, *, by_hand: bool = False) -> tuple[Receipt, ...]:
        return push_collecting_errors(
            self.lease, self.store, self.connector, self.progress, self.refused, by_hand=by_hand
        )

    def pages(self) -> Pages:
        """Store and return the pages where annotators answer."""
        pages = self.connector.workplaces()
        self.store.note_workplaces(self.lease, pages)
        return pages

    def resume(self, due: str | None, queued: tuple[Receipt, ...]) -> CycleReport | None:
        """Push the recorded results of a killed run. Return None if none is recorded for this scheduled run."""
        judgement = None if due is None else _recorded(self.store, self.settings.name, due)
        if judgement is None:
            return None
        return CycleReport(PullSummary(), judgement, (*queued, *self.push()), self.pages())

    def unchanged(self, last: CycleSummary, pulled: PullSummary, now: float) -> bool:
        """Return True if no input of the last run has changed. Questions are read only if a page was pulled."""
        recorded, there = last.basis, inputs_digest.digest_inputs(self.settings, self.store, self.connector)
        if not inputs_digest.unchanged(recorded, there, None, now):
            return False
        return not pulled.pages or inputs_digest.unchanged(
            recorded, there, inputs_digest.digest_questions(self.connector.questions()), now
        )

    def finish_unchanged(self, last: CycleSummary, pulled: PullSummary, queued: tuple[Receipt, ...]) -> Unchanged:
        """Push unconfirmed operations, and nothing else."""
        pulled += PullSummary(problems=orders_of_others(self.store, self.settings.name, self.connector))
        receipts, pages = (*queued, *self.push()), self.pages()
        self.store.note_look(self.lease)
        forget(self.lease, self.settings, self.store)
        return Unchanged(pulled, last, receipts, pages)

    def embed(self) -> tuple[str, ...]:
        """Embed new and changed items. Return warnings for items without features, or about an unreadable file."""
        try:
            left_out = embed(self.lease, self.settings, self.store, self.connector, self.progress)
        except BadTable as error:
            if features.are_stored(self.settings, self.store):
                return (f"features: {error}. Mend the file; those made before are used",)
            raise
        return (describe_left_out(left_out),) if left_out else ()

    def judge(self, settings: Settings, *given: Any) -> tuple[dict[str, Training], Judgement]:
        """Train the model, then fit and plan from the stored data."""
        learned = learn(self.lease, settings, self.store, given[0], self.progress)
        with one_fit:
            return learned, judge(settings, self.store, given[0], self.progress, *given[1:])

    def judge_and_push(
        self, pulled: PullSummary, queued: tuple[Receipt, ...], given: Crew | None, due: str | None, now: float | None
    ) -> CycleReport:
        """Run the steps after a pull: embed, learn, judge, record and push."""
        settings, store, connector = self.settings, self.store, self.connector
        there, names = inputs_digest.digest_inputs(settings, store, connector), annotator_names(store, settings.name)
        crew, told = reachable(given or crew_of(settings, store), connector, names)
        told += () if given else tuple(f"{what}: {mend}" for what, mend in ineffective(settings, store, crew))
        told += orders_of_others(store, settings.name, connector)
        left_out, questions = self.embed(), connector.questions()
        settle(self.lease, settings, store, questions)
        try:
            learned, judgement = self.judge(settings, questions, crew, now)
        except BadInput:
            settings, dead = usable(settings, store, questions)
            if not dead:
                raise
            left_out += dead
            learned, judgement = self.judge(settings, questions, crew, now)
        pulled = PullSummary(problems=(*told, *left_out)) + pulled
        noted: dict[str, Any] = {"problems": [*told, *left_out]} if told or left_out else {}
        if due is not None:
            noted |= {"due": due, "annotations": store.annotation_count(settings.name)}
        if given is None and not left_out:
            noted |= inputs_digest.as_metrics(there, settings, store, questions, judgement.plan)
        judgement = replace(judgement, metrics={**judgement.metrics, **noted})
        record(self.lease, settings, store, judgement)
        self.progress("recorded", 1, 1)
        return CycleReport(pulled, judgement, (*queued, *self.push()), self.pages(), learned)


@contextmanager
def _steps(settings: Settings, store: Store, connector: Connector, progress: Progress) -> Iterator[_Steps]:
    """Yield the steps under the project's lease, and raise refusals collected on the way at the end."""
    taken = store.lease(settings.name, seconds=lease_seconds(connector))
    with within(settings.limits.limits()), taken as lease, _noted(settings, store, lease):
        steps = _Steps(lease, settings, store, connector, progress)
        yield steps
        raise_all(steps.refused)


@contextmanager
def _noted(settings: Settings, store: Store, lease: Lease) -> Iterator[None]:
    """Record why a run failed, until one succeeds, except if the store itself failed or another run has taken over."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, StoreError | Busy):
            with suppress(HitlError):
                store.note_failure(lease, error, build_events.of_failure(settings, store, error))
        raise
    store.note_failure(lease, None, build_events.of_failure(settings, store, None))


def _recorded(store: Store, project: str, due: str) -> Judgement | None:
    if not store.recorded(project, due):
        return None
    last, latest = store.last_cycle(project), store.latest(project)
    return None if last is None or latest is None else Judgement({}, *latest, last.metrics)


def pull(
    lease: Lease, store: Store, connector: Connector, progress: Progress = silent, *, anew: bool = False
) -> PullSummary:
    """Pull changes, or everything if `anew`, saving each page with its cursor, and record the place pulled from.

    Raises BadSettings if the last pull was from another place, unless `anew`.
    """
    brought, cursor = PullSummary(), None if anew else store.cursor(lease.project)
    require_one_name(store, lease.project, connector)
    if cursor is not None:
        require_place(store, lease.project, connector)
    place = connector.place
    if place is not None and store.source(lease.project) != place:
        store.bind(lease, place, cursor)
    for page in connector.pull(cursor):
        brought += store.save_page(lease, page)
        progress("pull", brought.items, page.total)
    return brought + compare(lease, store, connector)


def compare(lease: Lease, store: Store, connector: Connector) -> PullSummary:
    """Save differences between platform and store that the platform did not report as changes. Return their counts."""
    found, cursor = PullSummary(), store.cursor(lease.project)
    if cursor is None:
        return found
    for page in connector.compare(cursor, store.held(lease.project)):
        saved = store.save_page(lease, page)
        found += replace(saved, fixed=saved.items)
    return found


def embed(
    lease: Lease, settings: Settings, store: Store, connector: Connector, progress: Progress = silent
) -> dict[str, str]:
    """Embed new and changed items. Return the items left without features, and why."""
    if settings.features.kind is None:
        return {}
    return features.refresh(lease, settings, store, item_names(settings, store), connector, progress)


def learn(
    lease: Lease,
    settings: Settings,
    store: Store,
    questions: tuple[Question, ...],
    progress: Progress = silent,
    *,
    anew: bool = False,
) -> dict[str, Training]:
    """Train as `[learn]` says if enough labels are new, or if `anew`. Return the new trainings by question."""
    if settings.learn.model is None:
        return {}
    with one_fit:
        return training.refresh(lease, settings, store, given_evidence(settings, store, questions), progress, anew=anew)


def judge(
    settings: Settings,
    store: Store,
    questions: tuple[Question, ...],
    progress: Progress = silent,
    crew: Crew | None = None,
    now: float | None = None,
) -> Judgement:
    """Compute consensus and plan from the stored data, without writing anything.

    The last recorded plan is part of the stored data: its unanswered questions stay, or expire at `now` (seconds since
    the epoch; default: the current time).
    """
    evidence = stored_evidence(settings, store, questions)
    results = combined(settings, evidence, progress)
    crew, budget, chooses = crew or crew_of(settings, store), budget_of(settings), settings.policy
    pool = PoolState.of([(evidence[name], results[name]) for name in evidence], budget)
    asks = policy(chooses.name, **chooses.options)
    now, expire = time.time() if now is None else now, settings.crew.expire_hours * HOUR
    plan = next_plan(asks, pool, crew, budget, without_rework(store.plan(settings.name)), now, expire)
    plan = with_rework(plan, store.sent_back(settings.name), evidence, results)
    progress("plan", 1, 1)
    audit = audited_agreement(store.audits(settings.name), evidence)
    metrics = {**metrics_of(pool, plan, crew, budget), "audit": asdict(audit) if audit.answered else None}
    return Judgement(evidence, results, plan, metrics)


def record(lease: Lease, settings: Settings, store: Store, judgement: Judgement, *, waits: bool = False) -> int:
    """Store the judgement and its operations in one transaction.

    Return the run number. `waits`: they are not sent at once.
    """
    from hitl.store import CycleRecord

    store.make_mark(lease)
    operations = tuple(operations_of(settings.push, store, lease.project, judgement))
    again = departed(store, lease.project, judgement, operations)
    told = build_events.of_cycle(settings, store, judgement, waits=waits)
    what = (judgement.results, judgement.plan, operations, judgement.metrics, judgement.metrics.get("due"))
    forget(lease, settings, store)
    return store.record_cycle(lease, CycleRecord(*what, again, told))


def push(
    lease: Lease,
    store: Store,
    connector: Connector,
    progress: Progress = silent,
    *,
    verify: bool = False,
    by_hand: bool = False,
) -> Iterator[Receipt]:
    """Push every unconfirmed operation in order, confirming each once verified on the platform.

    `verify` also checks confirmed operations, compares their full content (`Connector.verify`), and fixes later changes
    on the platform. A push after one that was cut short does the same. `by_hand` sends only operations queued by hand
    (`hitl.manual_operations`).

    If the platform refuses an operation or does not answer, the push continues with the others, except those that need
    it (`NEEDS`), and stops once nothing is answered any more. The errors are raised at the end and the operations sent
    again next time, except refused ones that were queued by hand.
    """
    from hitl.store.pushes import confirmed

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
            kind, end = pending[done].kind, end_of_kind(pending, done)
            if NEEDS.get(kind) in kinds:
                done = end
                continue
            store.renew(lease)
            try:
                for receipt in confirmed(lease, store, send(pending[done:end]), progress, done, len(pending)):
                    done += 1
                    yield receipt
                done = end
            except (PlatformError, BadInput, BadSettings) as error:
                failed.append(_withdrawn(lease, store, pending[min(done, end - 1)], error))  # raised after the last one
                kinds.add(kind)
                done = min(done + 1, end)
            if len(failed) >= IN_A_ROW and all(isinstance(error, Unreachable) for error in failed[-IN_A_ROW:]):
                break
        if any(isinstance(error, Unreachable) for error in failed):
            store.renew(lease)  # a request may be in flight: raise LeaseLost if overtaken, so the new holder verifies
        else:
            store.end_push(lease, verified=verify and not failed)
    raise_all(failed)


NEEDS = {"consensus": "order"}
"""Kinds not sent if another was refused: without an order, a platform may show annotators the consensus."""

IN_A_ROW = 3
"""Number of unanswered operations in a row after which the platform counts as down."""


@contextmanager
def _sending(lease: Lease, store: Store, connector: Connector) -> Iterator[None]:
    """Block writes once the lease is lost, and record for the next holder that something may have been sent."""

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


def _withdrawn(lease: Lease, store: Store, operation: Operation, error: HitlError) -> HitlError:
    if isinstance(error, Unreachable) or not store.withdraw(lease, operation):
        return error
    return Refused(f"{error}; not sent again: {subject_of(operation)}. Mend it, then give the command again")


def push_collecting_errors(
    lease: Lease,
    store: Store,
    connector: Connector,
    progress: Progress,
    failed: list[HitlError],
    *,
    by_hand: bool = False,
) -> tuple[Receipt, ...]:
    """Return the receipts of `push`, adding its errors to `failed`."""
    receipts = []
    try:
        for receipt in push(lease, store, connector, progress, by_hand=by_hand):
            receipts.append(receipt)
    except (PlatformError, BadInput, BadSettings) as error:
        failed.append(error)
    return tuple(receipts)
