"""One run: pull, combine, plan and push. Each step is safe to repeat, and so is the whole run.

    pull    pages -> store                              rows and their cursor in one transaction
    embed   items -> features -> store                  new and changed items, if `[features]` is set
    learn   labels -> a model -> predictions -> store   if `[learn]` is set and enough labels have changed
    judge   store -> evidence -> consensus -> plan      a pure function of the stored data and the time
    record  consensus, plan, operations -> store        in one transaction; unchanged operations stay confirmed
    push    outbox -> platform                          verified there, then confirmed (`hitl.operations`)

Operations queued by hand (new items, ground truth) are pushed first. A crash loses nothing: the next run continues from
the cursor, computes the same plan from the same evidence, and sends unconfirmed operations. The consensus depends only
on the evidence, because no fit starts from an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hitl import inputs_digest, project
from hitl.active.pending.outstanding import HOUR, next_plan
from hitl.active.pending.rework import with_rework, without_rework
from hitl.active.pool_state import PoolState
from hitl.active.registry import policy
from hitl.crew import Crew
from hitl.errors import BadInput, BadSettings, BadTable, Busy, HitlError, StoreError, raise_all
from hitl.events import build_events
from hitl.kinds.kind import by_control
from hitl.learning import features, training
from hitl.metrics import metrics_of
from hitl.models.analysis.audited_agreement import audited_agreement
from hitl.models.predictors.features import describe_left_out
from hitl.operations import Judgement, departed, operations_of, push_collecting_errors
from hitl.platform import Connector, Pages, Progress, PullSummary, Question, Receipt, silent
from hitl.settings import Keyed, Settings
from hitl.store import CycleRecord, CycleSummary, Lease, Store
from hitl.store.learned import Training
from hitl.tables.limits import within


class _Changing:
    """Base of reports with receipts from the platform."""

    receipts: tuple[Receipt, ...]

    @property
    def changed(self) -> int:
        """Number of changes made on the platform; 0 if it already was as planned."""
        return sum(receipt.changed for receipt in self.receipts)


@dataclass(frozen=True)
class CycleReport(_Changing):
    """Result of one run."""

    pulled: PullSummary
    judgement: Judgement
    receipts: tuple[Receipt, ...]
    pages: Pages = Pages()
    learned: Mapping[str, Training] = field(default_factory=dict)


@dataclass(frozen=True)
class Unchanged(_Changing):
    """Result of a run that found no changes: the `last` result is reused."""

    pulled: PullSummary
    last: CycleSummary
    receipts: tuple[Receipt, ...]
    pages: Pages = Pages()


def run(
    settings: Settings,
    store: Store,
    connector: Connector,
    progress: Progress = silent,
    crew: Crew | None = None,
    *,
    now: float | None = None,
) -> CycleReport:
    """Run once under the project's lease. Raises Busy if another run holds it.

    `crew`: who can be asked; default: the crew of the settings. `now`: see `judge`.
    """
    with _steps(settings, store, connector, progress) as steps:
        queued = steps.push(by_hand=True)  # push first, so that the pull reads the new items and ground truth
        return steps.judge_and_push(steps.pull(), queued, crew, None, now)


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

    Unconfirmed operations are pushed in any case. `due`: name of the scheduled run, recorded in its metrics.
    """
    now = time.time() if now is None else now
    with _steps(settings, store, connector, progress) as steps:
        queued = steps.push(by_hand=True)
        pulled, last = steps.pull(), store.last_cycle(settings.name)
        if last is None or not steps.unchanged(last, pulled, now):
            return steps.judge_and_push(pulled, queued, None, due, now)
        return steps.finish_unchanged(last, pulled, queued)


@dataclass(frozen=True)
class _Steps:
    """The steps of one run. `refused` collects errors of pushes, which are raised at the end of the run."""

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

    def orders_of_others(self) -> tuple[str, ...]:
        """Return a warning if another store has ordered the items. Raise BadSettings if it did so after this one."""
        store, name = self.store, self.settings.name
        warned = project.orders_of_others(store, name, self.connector)
        sent = any(state == "confirmed" for _, state in store.operations(name, "order")) if warned else False
        if sent and store.mark(name) not in self.connector.marks():
            raise BadSettings(
                "another hitl store has replaced the order that this one sent, so that two plan the same project; "
                "nothing was planned or sent. Stop the other one, then run `hitl push --verify` and `hitl run`. If the "
                "other one shall go on, remove this hitl.toml and its store"
            )
        return warned

    def doubtful(self, inputs: Mapping[str, Any]) -> Iterator[str]:
        """Warn of settings that alternate between runs, as with two hitl.toml over one store, and of duplicate ids."""
        before = [(cycle.basis or {}).get("settings") for cycle in self.store.cycles(self.settings.name, 3)]
        if inputs["settings"] in before[:-1] and before[-1] not in (None, inputs["settings"]):
            yield (
                "the last run had other settings than this one and an earlier one. If several hitl.toml or environments"
                " run over this store, they undo each other's plan: make them the same"
            )
        if isinstance(self.settings.source, Keyed) and self.settings.source.key:
            try:
                project.item_names(self.settings, self.store)
            except HitlError as error:
                yield f"exports and pages need other ids: {error}"

    def unchanged(self, last: CycleSummary, pulled: PullSummary, now: float) -> bool:
        """Return True if no input of the last run has changed. Questions are read only if a page was pulled."""
        recorded, current = last.basis, inputs_digest.digest_inputs(self.settings, self.store, self.connector)
        if not inputs_digest.unchanged(recorded, current, None, now):
            return False
        return not pulled.pages or inputs_digest.unchanged(
            recorded, current, inputs_digest.digest_questions(self.connector.questions()), now
        )

    def finish_unchanged(self, last: CycleSummary, pulled: PullSummary, queued: tuple[Receipt, ...]) -> Unchanged:
        """Push unconfirmed operations, and nothing else."""
        pulled += PullSummary(problems=self.orders_of_others())
        receipts, pages = (*queued, *self.push()), self.pages()
        self.store.note_look(self.lease)
        _forget(self.lease, self.settings, self.store)
        return Unchanged(pulled, last, receipts, pages)

    def embed(self) -> tuple[str, ...]:
        """Embed new and changed items. Return a warning about items left out, or about a file that cannot be read."""
        try:
            left_out = embed(self.lease, self.settings, self.store, self.connector, self.progress)
        except BadTable as error:
            if features.are_stored(self.settings, self.store):
                return (f"features: {error}. Fix the file; those made before are used",)
            raise
        return (describe_left_out(left_out),) if left_out else ()

    def judge(self, settings: Settings, questions: tuple[Question, ...], *more: Any) -> tuple[Any, Judgement]:
        """Train the model, then fit and plan from the stored data. Return the new trainings and the judgement."""
        learned = learn(self.lease, settings, self.store, questions, self.progress)
        with project.one_fit:
            return learned, judge(settings, self.store, questions, self.progress, *more)

    def judge_and_push(
        self, pulled: PullSummary, queued: tuple[Receipt, ...], given: Crew | None, due: str | None, now: float | None
    ) -> CycleReport:
        """Run the steps after a pull: embed, learn, judge, record and push."""
        settings, store, connector = self.settings, self.store, self.connector
        inputs, names = inputs_digest.digest_inputs(settings, store, connector), store.annotator_names(settings.name)
        crew, problems = project.reachable(given or project.crew_of(settings, store), connector, names)
        absent = absent_people(settings, store, connector)
        problems += (*self.orders_of_others(), *self.doubtful(inputs), *map(_not_there, sorted(absent)))
        left_out, questions = self.embed(), connector.questions()
        store.note_questions(self.lease, questions)
        store.keep_answers(self.lease, [question.name for question in questions])
        try:
            learned, judgement = self.judge(settings, questions, crew, now, absent)
        except BadInput:
            settings, unusable = project.usable(settings, store, questions)
            if not unusable:
                raise
            left_out += unusable
            learned, judgement = self.judge(settings, questions, crew, now, absent)
        problems += left_out
        noted: dict[str, Any] = {"problems": [*problems]} if problems else {}
        if due is not None:
            noted |= {"due": due, "annotations": store.annotation_count(settings.name)}
        if given is None and not left_out:
            noted |= inputs_digest.as_metrics(inputs, settings, store, questions, judgement.plan)
        judgement = replace(judgement, metrics={**judgement.metrics, **noted})
        record(self.lease, settings, store, judgement)
        self.progress("recorded", 1, 1)
        pulled = PullSummary(problems=problems) + pulled
        return CycleReport(pulled, judgement, (*queued, *self.push()), self.pages(), learned)


@contextmanager
def _steps(settings: Settings, store: Store, connector: Connector, progress: Progress) -> Iterator[_Steps]:
    """Yield the steps under the project's lease. At the end, raise the errors of pushes.

    The reason why a run failed is recorded until one succeeds, unless the store itself failed or another run has taken
    over.
    """
    store.database.require_sound()
    taken = store.lease(settings.name, seconds=project.lease_seconds(connector))
    with within(settings.limits.limits()), taken as lease:
        steps = _Steps(lease, settings, store, connector, progress)
        try:
            yield steps
            raise_all(steps.refused)
        except Exception as error:
            if not isinstance(error, StoreError | Busy):
                with suppress(HitlError):
                    store.note_failure(lease, error, build_events.of_failure(settings, store, error))
            raise
        store.note_failure(lease, None, build_events.of_failure(settings, store, None))


def pull(
    lease: Lease, store: Store, connector: Connector, progress: Progress = silent, *, full: bool = False
) -> PullSummary:
    """Pull changes, or all items if `full`. Save each page with its cursor, and record the place pulled from.

    Changes that the platform did not report are found by comparison, saved too, and counted as `fixed`. Annotations
    that cannot be read are told by every pull, as long as there are any. Raises BadSettings if the last pull was from
    another place, unless `full`.
    """
    pulled, cursor = PullSummary(), None if full else store.cursor(lease.project)
    project.require_one_name(store, lease.project, connector)
    if cursor is not None:
        project.require_place(store, lease.project, connector)
    place = connector.place
    if place is not None and store.source(lease.project) != place:
        store.bind(lease, place, cursor)
    for page in connector.pull(cursor):
        pulled += store.save_page(lease, page)
        progress("pull", pulled.items, page.total)
    cursor = store.cursor(lease.project)
    for page in () if cursor is None else connector.compare(cursor, store.held(lease.project)):
        saved = store.save_page(lease, page)
        pulled += replace(saved, fixed=saved.items)
    if pulled.pages or store.questions(lease.project) is None:
        store.note_questions(lease, connector.questions())
    notes = tuple(str(note) for note in store.notes(lease.project) if note.is_skip or pulled.changed)
    return pulled + PullSummary(problems=notes)


def embed(
    lease: Lease, settings: Settings, store: Store, connector: Connector, progress: Progress = silent
) -> dict[str, str]:
    """Embed new and changed items. Return item (by the user's id) -> why it has no features."""
    if settings.features.kind is None:
        return {}
    return features.refresh(lease, settings, store, project.item_names(settings, store), connector, progress)


def learn(
    lease: Lease,
    settings: Settings,
    store: Store,
    questions: tuple[Question, ...],
    progress: Progress = silent,
    *,
    force: bool = False,
) -> dict[str, Training]:
    """Train the model of `[learn]` if enough labels or items have changed, or in any case if `force`.

    Return the new trainings by question.
    """
    if settings.learn.model is None:
        return {}
    with project.one_fit:
        evidence = project.given_evidence(settings, store, questions)
        return training.refresh(lease, settings, store, evidence, progress, force=force)


def judge(
    settings: Settings,
    store: Store,
    questions: tuple[Question, ...],
    progress: Progress = silent,
    crew: Crew | None = None,
    now: float | None = None,
    absent: Collection[str] = (),
) -> Judgement:
    """Compute consensus and plan from the stored data, without writing anything.

    `absent`: annotators who are not asked about items that were sent back to them.

    Unanswered questions of the last recorded plan stay in the new one, unless they have expired at `now` (seconds since
    the epoch; default: the current time).
    """
    evidence = project.stored_evidence(settings, store, questions)
    results = project.combined(settings, store, evidence, progress)
    crew, budget, chosen = crew or project.crew_of(settings, store), project.budget_of(settings), settings.policy
    if budget.accepted and len(evidence) > 1:
        raise BadSettings("budget.accept: the project has several questions; expected one")
    pool = PoolState.of([(evidence[name], results[name]) for name in evidence], budget)
    now, expire = time.time() if now is None else now, settings.crew.expire_hours * HOUR
    last = without_rework(store.plan(settings.name))
    plan = next_plan(policy(chosen.name, **chosen.options), pool, crew, budget, last, now, expire)
    sent_back = [back for back in store.sent_back(settings.name) if back.annotator not in absent]
    plan = with_rework(plan, sent_back, evidence, results)
    progress("plan", 1, 1)
    audit = audited_agreement(store.audits(settings.name), evidence)
    place = {name: position for position, name in enumerate(results)}
    controls = {name: [place[one.question] for one in own] for name, own in by_control(evidence, results).items()}
    figures = metrics_of(pool, plan, crew, budget, controls)
    done = {name: pool.part(places).done for name, places in controls.items()} if len(controls) > 1 else {}
    return Judgement(evidence, results, plan, {**figures, "audit": asdict(audit) if audit.answered else None}, done)


def record(lease: Lease, settings: Settings, store: Store, judgement: Judgement, *, waits: bool = False) -> int:
    """Store the judgement and its operations in one transaction. Return the run number.

    `waits`: the operations wait for a later push, which an event reports.
    """
    store.make_mark(lease)
    operations = tuple(operations_of(settings.push, store, lease.project, judgement))
    again = departed(store, lease.project, judgement, operations)
    told = build_events.of_cycle(settings, store, judgement, waits=waits)
    _forget(lease, settings, store)
    results = CycleRecord(judgement.results, judgement.plan, operations, judgement.metrics, again, told, judgement.done)
    return store.record_cycle(lease, results)


def absent_people(settings: Settings, store: Store, connector: Connector) -> frozenset[str]:
    """Return whom items were sent back to, and who are no users of the platform."""
    sent = {str(back.annotator) for back in store.sent_back(settings.name) if not back.answered}
    people = project.people_of(connector) if sent else None
    there = {name for row in people or () for name in (row.name, f"{row.name} ({row.key})")}
    return frozenset() if people is None else frozenset(sent - there)


def _not_there(name: str) -> str:
    return (
        f"items were sent back to {name!r}, who is no user of the platform and is not asked. Let them sign up there, "
        "take the items back on the pages, or let someone else audit (`hitl certify --by`)"
    )


def _forget(lease: Lease, settings: Settings, store: Store) -> None:
    store.forget(lease, deleted_seconds=settings.retention.deleted, cycles=settings.retention.cycles)
