"""Define the commands that run a project and show its state. Each calls the library and shows the result."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import require_unread
from hitl.cli.options import HERE, Config, DryRun, Json, opt
from hitl.errors import BadSettings, HitlError, MissingToken, PlatformError, StoreError
from hitl.platform import SUBJECTS
from hitl.project import lease_seconds, opened, require_place, stored

if TYPE_CHECKING:
    from hitl.cycle import CycleReport, Unchanged
    from hitl.operations import Judgement
    from hitl.platform import Operation, PullSummary, Receipt
    from hitl.settings import Settings
    from hitl.store.learned import Training

AcceptDeletions = Annotated[bool, opt("Tables: accept that rows are gone, however many.", "--accept-deletions")]
CHECKS: Mapping[type[HitlError], str] = {
    MissingToken: "token",
    BadSettings: "settings",
    StoreError: "store",
    PlatformError: "platform",
}
"""Error -> name of the check of `hitl doctor` that it ends."""
AS_PLANNED = "nothing to push: the platform is up to date with the plan"
DIFFERENCES = 20
"""Maximum number of differences that `hitl audit` prints as lines. --json has all of them."""


def doctor(config: Config = HERE, as_json: Json = False) -> None:
    """Check settings, store, connection, permissions and labeling config, and say how to fix problems."""
    from hitl.doctor import checks
    from hitl.platform import Check

    made: list[Check] = []

    def tell(check: Check) -> None:
        made.append(check)
        if not as_json:
            show.line(f"{'FAIL' if not check.ok else 'warn' if check.warns else 'ok  '}  {check.name}: {check.detail}")
            if check.fix and (check.warns or not check.ok):
                show.line(f"      -> {check.fix}")

    code = 0
    try:
        for check in checks(config):
            tell(check)
            code = code or int(not check.ok)
    except HitlError as error:
        code = error.exit_code
        subject = next((name for kind, name in CHECKS.items() if isinstance(error, kind)), "project")
        tell(Check(subject, False, str(error)))
    show.result({"ok": not code, "checks": show.without_passwords([asdict(check) for check in made])}, (), as_json)
    if code:
        raise typer.Exit(code)


def audit(
    config: Config = HERE,
    repair: Annotated[bool, opt("Fix the differences, and compare again.", "--repair")] = False,
    as_json: Json = False,
) -> None:
    """Compare platform and store: annotations, predictions and everything pushed. Exit with 1 if they differ."""
    from hitl import audit as audits

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        report = audits.audit(settings, store, connector, progress)
        before = len(report.differences)
        if repair and not report.agrees:
            report = audits.repair(settings, store, connector, report, progress)
    data = {
        "agrees": report.agrees,
        "compared": dict(report.compared),
        "fixed": before - len(report.differences),
        "differences": [{**asdict(one), "why": show.without_passwords(one.why)} for one in report.differences],
        "left_out": show.without_passwords(report.left_out),
    }
    lines = [*report.left_out]
    lines += [f"{one.what} {one.key}: {one.why}".replace("  ", " ") for one in report.differences[:DIFFERENCES]]
    if len(report.differences) > DIFFERENCES:
        lines.append(f"and {len(report.differences) - DIFFERENCES:,} more")
    compared = ", ".join(f"{number:,} {name}" for name, number in report.compared.items())
    cure = "the next `hitl run` fixes what it plans again" if repair else "`hitl audit --repair` fixes it"
    verdict = "platform and store agree" if report.agrees else f"platform and store differ; {cure}"
    show.result(data, [*lines, f"compared {compared}: {verdict}"], as_json)
    if not report.agrees:
        raise typer.Exit(1)


def status(config: Config = HERE, as_json: Json = False) -> None:
    """Show the state of the project: what is done, what is missing, and what was not pushed yet."""
    from hitl.certificates.certificate import Certificate
    from hitl.cli.certify import CERTIFICATE, in_brief
    from hitl.cli.status import words
    from hitl.status import status_of

    with stored(config) as (settings, store):
        now = status_of(settings, store)
    data, lines = show.without_passwords(now.as_json()), words(now)
    if (path := config.parent / CERTIFICATE).exists():
        try:
            document = Certificate.read(path)
            data["certificate"], ahead = in_brief(document)
            lines += [f"Certificate: {document.statement[0]}.", *(f"  {line}." for line in ahead)]
            lines.append(
                f"  It is about the labels of {document.started}; `hitl verify` compares exported ones with them."
            )
        except HitlError as error:
            lines.append(f"Certificate: {error}")
    show.result(data, lines, as_json)


def learn(config: Config = HERE, as_json: Json = False) -> None:
    """Train the model of \\[learn] on the stored labels. The next run uses its predictions."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if settings.learn.model is None:
            raise BadSettings('learn.model: nothing learns; expected [learn] with model = "logistic" in hitl.toml')
        with store.lease(settings.name) as lease:
            cycle.embed(lease, settings, store, connector, progress)
            cycle.learn(lease, settings, store, connector.questions(), progress, force=True)
        trainings = store.trainings(settings.name)
    few = "too few labels to learn from: expected two classes, and two labeled items a fold"
    few += ", each of a group of its own" if settings.learn.groups else ""
    data = {name: asdict(training) for name, training in trainings.items()}
    show.result(data, _trainings(trainings) or [few], as_json)


def pull(
    config: Config = HERE,
    full: Annotated[bool, opt("Pull everything again.")] = False,
    accept_deletions: AcceptDeletions = False,
    as_json: Json = False,
) -> None:
    """Pull new, edited and deleted annotations into the store."""
    from hitl import cycle

    with opened(config, full=full) as (settings, store, connector), show.progress(as_json) as progress:
        if accept_deletions:
            connector.accept_deletions()
        with store.lease(settings.name) as lease:
            pulled = cycle.pull(lease, store, connector, progress, full=full)
        counts = store.counts(settings.name)
    data = {**show.without_passwords(asdict(pulled)), "stored": counts}
    show.result(data, _pulled(pulled, counts), as_json)
    if not as_json:
        show.problems(pulled.problems)


def plan(
    config: Config = HERE,
    dry_run: DryRun = False,
    output: Annotated[Path | None, opt("Table of the questions to write.", "--output", "-o")] = None,
    as_json: Json = False,
) -> None:
    """Plan who should label what next, from the stored labels. The next push sends the plan."""
    from hitl import cycle
    from hitl.connectors.catalog import connector_of
    from hitl.events.sender import deliver
    from hitl.project import item_names, stored_questions
    from hitl.status import as_of

    with stored(config) as (settings, store), show.progress(as_json) as progress:
        require_unread(config, settings, [output])
        questions, names = stored_questions(settings, store), item_names(settings, store)
        absent: Collection[str] = ()
        if not dry_run:
            with suppress(MissingToken):
                connector = connector_of(settings.source, config.parent)
                require_place(store, settings.name, connector)
                absent = cycle.absent_people(settings, store, connector)
        age = as_of(store, settings.name)
        # Hold the lease, because nothing may be pulled or planned between estimating and recording.
        with nullcontext() if dry_run else store.lease(settings.name) as lease:
            judgement = cycle.judge(settings, store, questions, progress, absent=absent)
            if lease is not None:
                cycle.record(lease, settings, store, judgement, waits=True)
        if not dry_run:
            deliver(settings, store)
        judgement = judgement.named(names)
        if output is not None:
            judgement.plan.write(output)
    _show_plan(judgement, settings, as_json, dry_run, age)


def push(
    config: Config = HERE,
    dry_run: DryRun = False,
    verify: Annotated[
        bool, opt("Also check everything pushed before, and fix what was changed on the platform.", "--verify")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send the plan and the consensus to the platform."""
    from hitl import operations

    if dry_run:
        with stored(config) as (settings, store):
            show_operations(store.pending(settings.name), as_json)
        return
    with (
        opened(config) as (settings, store, connector),
        show.progress(as_json) as progress,
        store.lease(settings.name, seconds=lease_seconds(connector)) as lease,
    ):
        receipts = tuple(operations.push(lease, store, connector, progress, verify=verify))
    show_receipts(receipts, as_json)


def run(
    config: Config = HERE,
    dry_run: DryRun = False,
    again: Annotated[bool, opt("Combine and plan again even if nothing has changed.", "--again")] = False,
    accept_deletions: AcceptDeletions = False,
    as_json: Json = False,
) -> None:
    """Pull, combine, plan and push. It is safe to interrupt and to repeat; `hitl schedule` repeats it.

    If nothing has changed since the last run, its result is reused.
    """
    from hitl import cycle
    from hitl.events.sender import delivering

    if dry_run:
        plan(config, dry_run=True, as_json=as_json)
        return
    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if accept_deletions:
            connector.accept_deletions()
        with delivering(settings, store):
            report = (cycle.run if again else cycle.run_if_changed)(settings, store, connector, progress)
        # Count only if the result is shown, because in a large project counting takes longer than a small run.
        counts = {} if as_json or isinstance(report, cycle.Unchanged) else store.counts(settings.name)
    data: dict[str, Any] = {
        "pulled": show.without_passwords(asdict(report.pulled)),
        "unchanged": isinstance(report, cycle.Unchanged),
        "operations": len(report.receipts),
        "changed": report.changed,
        "links": show.without_passwords(report.pages.links),
    }
    if isinstance(report, cycle.Unchanged):
        lines, metrics = _unchanged_lines(report), report.last.metrics
    else:
        lines, metrics = _cycle_lines(report, settings, counts), report.judgement.metrics
        data["learned"] = {name: asdict(training) for name, training in report.learned.items()}
        data["asks"] = len(report.judgement.plan.asks)
    show.result(data | {"metrics": show.without_passwords(metrics)}, lines, as_json)
    if not as_json:
        show.problems(report.pulled.problems)


# -- in words ----------------------------------------------------------------------------------------------


def _cycle_lines(report: CycleReport, settings: Settings, counts: Mapping[str, int]) -> Iterator[str]:
    from hitl.cli.status import where_to_answer

    plan = report.judgement.plan
    yield from _pulled(report.pulled, counts)
    yield from _trainings(report.learned)
    yield f"planned {plan}"
    yield from _who(report.judgement, settings)
    yield from where_to_answer(map(str, plan.annotators), report.pages)
    yield _pushed(report)


def _unchanged_lines(report: Unchanged) -> Iterator[str]:
    last = f"run {report.last.number} ({report.last.recorded_at:%Y-%m-%d %H:%M} UTC)"
    if report.pulled.problems:
        yield f"nothing new was pulled, but there are problems; the results are those of {last}"
    else:
        yield f"nothing has changed since {last}, so its results still hold"
    if report.receipts:
        yield _pushed(report)


def _pushed(report: CycleReport | Unchanged) -> str:
    """Describe what was sent, and how much of it the platform did not have yet."""
    operations, changes = show.counted(len(report.receipts), "operation"), show.counted(report.changed, "change")
    by_subject = Counter[str]()
    for receipt in report.receipts:
        by_subject[SUBJECTS[receipt.operation.kind]] += receipt.changed
    parts = ", ".join(f"{subject} ({count:,})" for subject, count in by_subject.items() if count)
    return f"pushed {operations}, {changes}{': ' if parts else ''}{parts}"


def _pulled(pulled: PullSummary, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the changes pulled and the number of stored rows. Problems are shown elsewhere."""
    from hitl.status import stored_in_words

    entries = show.counted(pulled.changed, "entry", "entries")
    line = f"pulled {show.counted(pulled.items, 'item')}: {entries} new or changed, {pulled.deleted:,} deleted"
    yield f"{line}; stored: {stored_in_words(counts)}"
    if pulled.fixed:
        items = show.counted(pulled.fixed, "item")
        yield f"{items} changed without a newer timestamp, or arrived late; found by comparing all rows"


def _trainings(trainings: Mapping[str, Training]) -> list[str]:
    lines = []
    for question, training in trainings.items():
        if training.informs:
            verdict = (
                f"agrees with annotators on {show.percent(training.agreement, 0)} of held-out items, so it is used"
            )
        else:
            verdict = "is no better than guessing by class frequency, so it is not used"
        lines.append(f"{question}: trained on {show.counted(training.items, 'item')}; {verdict}")
    return lines


def _show_plan(judgement: Judgement, settings: Settings, as_json: bool, dry_run: bool, age: str) -> None:
    def data() -> dict[str, Any]:
        metrics = show.without_passwords(judgement.metrics)
        return {"dry_run": dry_run, "as_of": age, "metrics": metrics, "plan": json.loads(judgement.plan.to_json())}

    def lines() -> Iterator[show.Line]:
        yield age
        yield str(judgement.plan)
        yield from _who(judgement, settings)
        if judgement.plan.asks:
            table = judgement.plan.table().drop_columns(["check", "seconds", "probability", "audit"])
            yield show.frame("Asked next", table.to_pandas().fillna({"annotator": "anyone"}), 15)
        if dry_run:
            yield "dry run: nothing was recorded or pushed"

    show.result(data, lines(), as_json)


def _who(judgement: Judgement, settings: Settings) -> Iterator[str]:
    """Yield the number of questions per annotator, and why some annotators or items get none."""
    from hitl.cli.status import asked
    from hitl.metrics import without_questions
    from hitl.status import queues_of

    yield from asked(queues_of(judgement.plan, settings.crew.expire_hours, time.time()))
    if judgement.plan.asks and not settings.crew.annotators:
        yield "to ask each question of the best annotator, name annotators under [crew] (`hitl annotators` lists them)"
    yield from without_questions(judgement.metrics)
    for reason, key in (("No questions are sent", "idle"), ("Some items get no questions", "lacking")):
        if judgement.metrics.get(key):
            yield f"{reason}: {judgement.metrics[key]}."
            return


def show_operations(operations: Sequence[Operation], as_json: bool = False) -> None:
    """Show the operations that would be pushed."""
    rows: list[dict[str, Any]] = []
    lines = []
    for each in operations:
        size = len(next(iter(each.payload.values()), ()))
        rows.append({"kind": each.kind, "key": each.key, "size": size})
        lines.append(f"would push {each.subject} ({show.counted(size, 'entry', 'entries')})")
    show.result({"dry_run": True, "operations": rows}, lines or [AS_PLANNED], as_json)


def show_receipts(receipts: Sequence[Receipt], as_json: bool = False) -> None:
    """Show the operations that were pushed."""
    rows = [
        {"kind": r.operation.kind, "key": r.operation.key, "changed": r.changed, "detail": r.detail} for r in receipts
    ]
    lines = [f"{r.operation.subject}: {show.counted(r.changed, 'change')}; {r.detail}".rstrip("; ") for r in receipts]
    show.result({"operations": show.without_passwords(rows)}, lines or [AS_PLANNED], as_json)
