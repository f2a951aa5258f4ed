"""Define the commands of a project, except `init` and `schedule`. Each calls the library and shows the result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.combine import write_annotators
from hitl.cli.evidence import files_for, require_unread
from hitl.cli.options import HERE, AnnotatorsOutput, Config, DryRun, Json, OneQuestion, grouped
from hitl.errors import BadSettings, HitlError, MissingToken
from hitl.formatting import subject_of
from hitl.project import lease_seconds, opened, recalled, require_place, stored

if TYPE_CHECKING:
    from hitl.cycle import CycleReport, Unchanged
    from hitl.operations import Judgement
    from hitl.platform import Check, Operation, PullSummary, Question, Receipt
    from hitl.settings import Settings
    from hitl.store import Store

AcceptDeletions = Annotated[
    bool, typer.Option("--accept-deletions", help="Tables: take rows that are gone for deleted, however many they are.")
]
AS_PLANNED = "nothing to push: the platform is as planned"


def doctor(config: Config = HERE, as_json: Json = False) -> None:
    """Check settings, store, connection, rights and labeling config, and say how to mend them."""
    from hitl.doctor import checks
    from hitl.platform import Check

    found: list[Check] = []
    code = 0
    try:
        for check in checks(config):
            found.append(check)
            code = code or int(not check.ok)
    except HitlError as error:
        code = error.exit_code
        found.append(Check(type(error).__name__, False, str(error)))
    lines = []
    for check in found:
        lines.append(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}")
        if not check.ok and check.fix:
            lines.append(f"      -> {check.fix}")
    show.result({"ok": not code, "checks": show.without_passwords([asdict(check) for check in found])}, lines, as_json)
    if code:
        raise typer.Exit(code)


def pull(
    config: Config = HERE,
    full: Annotated[bool, typer.Option(help="Pull everything again.")] = False,
    accept_deletions: AcceptDeletions = False,
    as_json: Json = False,
) -> None:
    """Bring new, edited and deleted annotations into the store."""
    from hitl import cycle

    with opened(config, anew=full) as (settings, store, connector), show.progress(as_json) as progress:
        if accept_deletions:
            connector.accept_deletions()
        with store.lease(settings.name) as lease:
            summary = cycle.pull(lease, store, connector, progress, anew=full)
        counts = store.counts(settings.name)
    if as_json:
        show.as_json({**show.without_passwords(asdict(summary)), "stored": counts})
        return
    _show_pulled(summary, counts)
    show.problems(summary.problems)


def plan(
    config: Config = HERE,
    dry_run: DryRun = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the questions as a table.")] = None,
    as_json: Json = False,
) -> None:
    """Decide what to ask next, and whom, from what is stored. The next push sends it."""
    from hitl import cycle
    from hitl.events.sender import deliver
    from hitl.project import item_names

    with stored(config) as (settings, store), show.progress(as_json) as progress:
        require_unread(config, settings, [output])
        questions, names = _questions(settings, store, config.parent), item_names(settings, store)
        # Nothing may be pulled or planned between estimating and recording.
        with nullcontext() if dry_run else store.lease(settings.name) as lease:
            judgement = cycle.judge(settings, store, questions, progress)
            if lease is not None:
                cycle.record(lease, settings, store, judgement, waits=True)
        if not dry_run:
            deliver(settings, store)
        judgement = judgement.named(names)
        if output is not None:
            judgement.plan.write(output)
    _show_plan(judgement, settings, as_json, dry_run)


def _questions(settings: Settings, store: Store, folder: Path) -> tuple[Question, ...]:
    """Return the questions of the platform, or those of the last run if its token is missing.

    Raises MissingToken if there is no run either.
    """
    from hitl.connectors.catalog import connector_of
    from hitl.report.stored import asked_before

    try:
        connector = connector_of(settings.source, folder)
    except MissingToken as missing:
        latest = store.latest(settings.name)
        if latest is None:
            raise
        show.warning(f"{missing}. Without it the classes are taken to be those of the last cycle")
        return asked_before(latest[0])
    require_place(store, settings.name, connector)
    return recalled(connector, store, settings.name).questions()


def push(
    config: Config = HERE,
    dry_run: DryRun = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Look at everything pushed before too, and mend what was changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the platform as planned: order, queues, numbers of labels, consensus."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if dry_run:
            _show_operations(store.pending(settings.name), as_json)
            return
        with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
            receipts = tuple(cycle.push(lease, store, connector, progress, verify=verify))
    _show_receipts(receipts, as_json)


def run(
    config: Config = HERE,
    once: Annotated[bool, typer.Option("--once", hidden=True)] = False,
    dry_run: DryRun = False,
    again: Annotated[bool, typer.Option("--again", help="Judge and plan anew, even if nothing has changed.")] = False,
    accept_deletions: AcceptDeletions = False,
    as_json: Json = False,
) -> None:
    """One cycle: pull, combine, plan, push. Safe to repeat and to interrupt; `hitl schedule` repeats it.

    Where nothing has changed since the last cycle, what it concluded stands.
    """
    from hitl import cycle
    from hitl.cli.learn import in_words
    from hitl.cli.status import where_to_answer
    from hitl.events.sender import delivering
    from hitl.project import item_names

    if once:
        show.warning("--once does nothing: `hitl run` is always one cycle; leave it out")
    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if dry_run:
            judgement = cycle.judge(settings, store, connector.questions(), progress)
            _show_plan(judgement.named(item_names(settings, store)), settings, as_json, dry_run)
            return
        if accept_deletions:
            connector.accept_deletions()
        steps = cycle.run if again else cycle.run_if_changed
        with delivering(settings, store):
            report = steps(settings, store, connector, progress)
        # Counting takes longer than a small change to a large project, so count only if the result is shown.
        counts = {} if as_json or isinstance(report, cycle.Unchanged) else store.counts(settings.name)
    if isinstance(report, cycle.Unchanged):
        _show_unchanged(report, as_json)
        return
    pulled, judgement = report.pulled, report.judgement
    if as_json:
        show.as_json(
            {
                "pulled": show.without_passwords(asdict(pulled)),
                "unchanged": False,
                "learned": {name: asdict(one) for name, one in report.learned.items()},
                "metrics": show.without_passwords(judgement.metrics),
                "asks": len(judgement.plan.asks),
                "operations": len(report.receipts),
                "changed": report.changed,
                "links": show.without_passwords(report.pages.links),
            }
        )
        return
    _show_pulled(pulled, counts)
    for name, training in report.learned.items():
        show.line(in_words(name, training))
    show.line(f"planned {judgement.plan}")
    _show_who(judgement, settings)
    for text in where_to_answer(map(str, judgement.plan.annotators), report.pages):
        show.line(text)
    show.line(_pushed(report))
    show.problems(pulled.problems)


def status(config: Config = HERE, as_json: Json = False) -> None:
    """Where the project stands: what is done, expected, asked, and not pushed yet."""
    from hitl.cli.status import words
    from hitl.status import status_of

    with stored(config) as (settings, store):
        found = status_of(settings, store)
    show.result(show.without_passwords(found.as_json()), words(found), as_json)


@grouped
def export(
    annotators: AnnotatorsOutput,
    output: Annotated[Path, typer.Argument(help="Consensus table to write (CSV, JSON Lines, Parquet).")],
    annotations: Annotated[Path | None, typer.Option(help="Also write the raw annotations.")] = None,
    asked: Annotated[
        Path | None, typer.Option(help="Also write every question that was ever planned, with its probability.")
    ] = None,
    question: OneQuestion = None,
    config: Config = HERE,
) -> None:
    """Write the labels of the last cycle, one row an item, by your own ids, with what each label rests on."""
    from hitl.export import asked_table, label_tables, multiple_choices
    from hitl.kinds.kind import kind_of
    from hitl.operations import Judgement
    from hitl.project import item_names, stored_evidence
    from hitl.tables.files import require_writable, write_table

    require_writable(output, annotators.path, annotations, asked)
    with opened(config) as (settings, store, connector):
        latest = store.latest(settings.name)
        if latest is None:
            raise BadSettings("export: no cycle yet; run `hitl run` (or `hitl plan`) first")
        results, last = latest
        controls = multiple_choices({name: result.classes for name, result in results.items()})
        if question is not None and question not in {*results, *controls}:
            raise BadSettings(f"--question {question!r} is not one of {', '.join({**controls, **results})}")
        names = item_names(settings, store)
        known = stored_evidence(settings, store, connector.questions())
        wanted = results if question is None else controls.get(question, {question: question}).values()
        layers = [name for name, one in known.items() if one.parts and one.parts.question.name == question]
        chosen = {name: results[name] for name in layers or wanted if name in results}
        gone = [name for name in chosen if name not in known]
        if gone:
            raise BadSettings(f"export: the project no longer asks {', '.join(gone)}; run `hitl run` first")
        of_chosen = {name: known[name] for name in chosen}
        judged = store.last_cycle(settings.name)
        if judged is not None and judged.revision not in (None, store.revision(settings.name)):
            show.warning("something changed since the last cycle; what that did not judge is left out: run `hitl run`")
        tables = label_tables(Judgement(of_chosen, chosen, last), store.items(settings.name), names)
        answered = {one.parts.question.name if one.parts else name: one for name, one in of_chosen.items()}
        files, raw = files_for(output, tables), files_for(annotations, answered)
        people = files_for(annotators.path, chosen)
        require_unread(config, settings, [*files.values(), *people.values(), asked, *raw.values()])
        answer_tables = {name: kind_of(answered[name]).answers(answered[name], names) for name in raw}
        for name, file in files.items():
            write_table(file, tables[name])
        write_annotators(chosen, annotators.path)
        if asked is not None:
            write_table(asked, asked_table(store.asks(settings.name), names))
        for name, file in raw.items():
            write_table(file, answer_tables[name])
    show.wrote([*files.values(), *people.values(), asked, *raw.values()])


def add(
    items: Annotated[Path, typer.Argument(help="Table with a column item and what annotators should see.")],
    item: Annotated[str, typer.Option(help="Column that names the item.")] = "item",
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Add new items to the platform, each once."""
    from hitl.manual_operations import new_items
    from hitl.tables.files import read_table

    _send(config, new_items(read_table(items, [item]), item, str(items)), str(items), dry_run)


def gold(
    truth: Annotated[
        Path,
        typer.Argument(
            help="Table with columns item and label: known truth. Several labels of a multiple choice: art,law."
        ),
    ],
    question: OneQuestion = None,
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Tell the platform the known truth of items, to check and calibrate annotators."""
    from hitl.manual_operations import known_truth
    from hitl.tables.files import read_table

    table = read_table(truth, ["item", "label"])
    with opened(config) as (_, _, connector):
        questions = connector.questions()
    _send(config, known_truth(table, questions, question, str(truth)), str(truth), dry_run)


def _send(config: Path, operation: Operation, where: str, dry_run: bool) -> None:
    from hitl.manual_operations import on_platform, send

    with opened(config) as (settings, store, connector), show.progress() as progress:
        if dry_run:
            if store.counts(settings.name)["items"]:  # otherwise nothing was pulled yet, and the items are unknown
                operation = on_platform(settings, store, operation, where)
            _show_operations([operation], False)
            return
        sent = send(settings, store, connector, operation, where, progress)
    show.problems(sent.problems)
    _show_receipts(sent.receipts, False)


def _show_unchanged(report: Unchanged, as_json: bool) -> None:
    """Show that nothing has changed, and which pending changes were pushed."""
    if as_json:
        show.as_json(
            {
                "pulled": show.without_passwords(asdict(report.pulled)),
                "unchanged": True,
                "metrics": show.without_passwords(report.last.metrics),
                "operations": len(report.receipts),
                "changed": report.changed,
                "links": show.without_passwords(report.pages.links),
            }
        )
        return
    when = f"{report.last.recorded_at:%Y-%m-%d %H:%M} UTC"
    show.line(f"nothing has changed since cycle {report.last.number} ({when}): what it concluded stands")
    if report.receipts:
        show.line(_pushed(report))
    show.problems(report.pulled.problems)


def _pushed(report: CycleReport | Unchanged) -> str:
    operations, changes = show.counted(len(report.receipts), "operation"), show.counted(report.changed, "change")
    return f"pushed {operations}, {changes} on the platform"


def _show_pulled(pulled: PullSummary, counts: Mapping[str, int]) -> None:
    """Show the changes pulled, and what is stored now. Problems are shown elsewhere."""
    from hitl.status import stored_in_words

    entries = show.counted(pulled.changed, "entry", "entries")
    line = f"pulled {show.counted(pulled.items, 'item')}: {entries} new or changed, {pulled.deleted:,} deleted"
    show.line(f"{line}; stored: {stored_in_words(counts)}")
    if pulled.fixed:
        items = show.counted(pulled.fixed, "item")
        show.line(f"{items} had changed without a later time on the platform, or had come late: found by comparison")


def _show_plan(judgement: Judgement, settings: Settings, as_json: bool, dry_run: bool) -> None:
    if as_json:
        metrics, planned = show.without_passwords(judgement.metrics), json.loads(judgement.plan.to_json())
        show.as_json({"dry_run": dry_run, "metrics": metrics, "plan": planned})
        return
    show.line(str(judgement.plan))
    _show_who(judgement, settings)
    if judgement.plan.asks:
        table = judgement.plan.table().drop_columns(["check", "seconds", "probability", "audit"])
        show.frame("Asked next", table.to_pandas().fillna({"annotator": "anyone"}), 15)
    if dry_run:
        show.line("dry run: nothing was recorded or pushed")


def _show_who(judgement: Judgement, settings: Settings) -> None:
    """Show how many questions each annotator gets, and why not more."""
    from hitl.cli.status import asked
    from hitl.metrics import without_questions
    from hitl.status import queues_of

    for text in asked(queues_of(judgement.plan, settings.crew.expire_hours, time.time())):
        show.line(text)
    for text in without_questions(judgement.metrics):
        show.line(text)
    for said, key in (("nothing is asked", "idle"), ("left aside", "lacking")):
        if judgement.metrics.get(key):
            show.line(f"{said}: {judgement.metrics[key]}")
            return


def _show_operations(operations: Sequence[Operation], as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": o.kind, "key": o.key, "size": len(next(iter(o.payload.values()), ()))} for o in operations
    ]
    named = zip(map(subject_of, operations), rows, strict=True)
    lines = [f"would push {what} ({show.counted(row['size'], 'entry', 'entries')})" for what, row in named]
    show.result({"dry_run": True, "operations": rows}, lines or [AS_PLANNED], as_json)


def _show_receipts(receipts: Sequence[Receipt], as_json: bool) -> None:
    rows = [
        {"kind": r.operation.kind, "key": r.operation.key, "changed": r.changed, "detail": r.detail} for r in receipts
    ]
    lines = [f"{subject_of(r.operation)}: {r.changed:,} changed {r.detail}".rstrip() for r in receipts]
    show.result({"operations": show.without_passwords(rows)}, lines or [AS_PLANNED], as_json)
