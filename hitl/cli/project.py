"""Commands of a project: settings, store and connector put together, results shown."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hitl.cli import show
from hitl.errors import BadSettings, BadTable, HitlError
from hitl.project import opened, stored

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.cycle import Judgement
    from hitl.exchange import Check, Operation
    from hitl.settings import Settings
    from hitl.store import Store


def init(
    config: Path,
    name: str | None,
    label_studio: str | None,
    project_id: int | None,
    control: str | None,
    tables: Path | None,
    store: str,
    annotators: tuple[str, ...],
) -> None:
    """Write hitl.toml; ask on a terminal for what is missing."""
    from hitl import settings

    if label_studio and tables:
        raise BadSettings("init: --label-studio and --tables exclude each other; a project has one source")
    if not label_studio and not tables:
        label_studio = _ask("Address of Label Studio", "--label-studio", "http://localhost:8080")
    source: dict[str, Any]
    if tables:
        if not tables.exists():
            raise BadSettings(f"init: --tables {tables}: no such file or folder")
        source = {"kind": "tables", "path": _beside(tables, config)}
    else:
        number = project_id if project_id is not None else int(_ask("Label Studio project id", "--project", None))
        source = {"kind": "label-studio", "url": label_studio, "project": number}
        if control:
            source["control"] = control
    name = name or (tables.resolve().stem if tables else f"label-studio-{source['project']}")
    settings.write(config, name, source, store, list(annotators))
    show.line(f"wrote {config}")
    if not tables:
        show.line(f"next: export {settings.TOKEN}=<your access token>, then `hitl doctor` and `hitl run`")
    else:
        show.line("next: `hitl doctor`, then `hitl run`")


def _beside(path: Path, config: Path) -> str:
    """A path as hitl.toml names it: relative to its folder, unless it was given whole."""
    if path.is_absolute():
        return str(path)
    try:
        return Path(os.path.relpath(path.resolve(), config.resolve().parent)).as_posix()
    except ValueError:  # another drive
        return str(path.resolve())


def _ask(question: str, flag: str, default: str | None) -> str:
    if not sys.stdin.isatty():
        raise BadSettings(f"init: {flag} is missing (and nobody is at the terminal to ask)")
    answer: str = typer.prompt(question, default=default)
    return answer


def doctor(config: Path, as_json: bool) -> None:
    """Every check with how to mend it; ends with the exit code of the first failure."""
    from hitl.exchange import Check
    from hitl.models.registry import combiner

    checks: list[Check] = []
    failure: HitlError | None = None
    try:
        with opened(config) as (settings, store, connector):
            checks.append(Check("settings", True, f"{config}: project {settings.name!r}"))
            checks.append(Check("store", True, _counts(store, settings.name)))
            combiner(settings.combine.method, **settings.combine.options)
            checks.append(Check("combiner", True, settings.combine.method))
            checks += connector.check()
            people = set(settings.crew.annotators) - set(store.annotators(settings.name).column("name").to_pylist())
            if people and settings.source.kind == "label-studio":
                mend = "they sign up in Label Studio, then `hitl pull`; or mend crew.annotators"
                checks.append(Check("crew", False, f"not seen yet: {', '.join(sorted(people))}", mend))
            checks += _skills(settings, store)
    except HitlError as error:
        failure = error
        checks.append(Check(type(error).__name__, False, str(error), ""))
    if as_json:
        show.as_json({"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            show.line(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}")
            if not check.ok and check.mend:
                show.line(f"      -> {check.mend}")
    if failure is not None:
        raise typer.Exit(failure.exit_code)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _skills(settings: Settings, store: Store) -> list[Check]:
    """Whether somebody can do what each item needs; nothing where items need nothing, or none was pulled yet."""
    from hitl.active.assignment.missing_skills import in_words, lacking
    from hitl.cycle import crew_of
    from hitl.exchange import Check

    items = store.items(settings.name).column("item").to_pylist()
    if settings.crew.needs is None or not items:
        return []
    crew = crew_of(settings, store)
    if not crew.needs:
        mend = "name the field of the items' data that says which skills an item takes"
        return [Check("skills", False, f"no item has the field {settings.crew.needs!r} (crew.needs)", mend)]
    lacks = lacking(items, crew)
    if lacks:
        return [Check("skills", False, in_words(lacks, crew), "mend crew.skills, or ask somebody who has them")]
    return [Check("skills", True, f"needed by {show.counted(len(crew.needs), 'item')}; somebody has them")]


def _counts(store: Store, name: str) -> str:
    return ", ".join(f"{value:,} {key}" for key, value in store.counts(name).items())


def pull(config: Path, full: bool, as_json: bool) -> None:
    """Pull and say what came."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        with store.lease(settings.name) as lease:
            if full:
                store.reset_cursor(lease)
            summary = cycle.pull(lease, store, connector, progress)
        counts = store.counts(settings.name)
    if as_json:
        show.as_json({**asdict(summary), "stored": counts})
        return
    show.line(
        f"pulled {summary.items:,} items and {summary.annotations:,} annotations: {summary.changed:,} changed, "
        f"{summary.deleted:,} deleted; stored: {', '.join(f'{v:,} {k}' for k, v in counts.items())}"
    )
    _problems(summary.problems)


def _problems(problems: tuple[str, ...]) -> None:
    for problem in problems[:10]:
        typer.echo(f"hitl: warning: {problem}", err=True)
    if len(problems) > 10:
        typer.echo(f"hitl: warning: and {len(problems) - 10} more like these", err=True)


def combine(config: Path, output: Path | None, annotators: Path | None, as_json: bool) -> None:
    """Combine what is stored and show or write it; nothing is recorded."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        judgement = cycle.judge(settings, store, connector.questions(), progress)
    if output is not None or annotators is not None:
        _write(judgement.results, output, annotators)
    if as_json:
        show.as_json(judgement.metrics)
        return
    for name, result in judgement.results.items():
        if output is None:
            show.table(f"Consensus: {name}", result.frame())
        show.table(f"Annotators: {name}", result.annotators.frame().sort_values("labels", ascending=False), 10)


def plan(config: Path, dry_run: bool, output: Path | None, as_json: bool) -> None:
    """Plan from what is stored; record it for the next push unless dry."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        questions = connector.questions()
        if dry_run:
            judgement = cycle.judge(settings, store, questions, progress)
        else:
            with store.lease(settings.name) as lease:  # nobody may pull or plan between judging and recording
                judgement = cycle.judge(settings, store, questions, progress)
                cycle.record(lease, settings, store, judgement)
        if output is not None:
            judgement.plan.write(output)
    _show_plan(judgement, settings, as_json, dry_run)


def _show_plan(judgement: Judgement, settings: Settings, as_json: bool, dry_run: bool) -> None:
    if as_json:
        import json

        show.as_json({"dry_run": dry_run, "metrics": judgement.metrics, "plan": json.loads(judgement.plan.to_json())})
        return
    show.line(str(judgement.plan))
    _show_who(judgement, settings)
    if judgement.plan.asks:
        frame = judgement.plan.table().drop_columns(["check", "seconds"]).to_pandas().fillna({"annotator": "anyone"})
        show.table("Asked next", frame, 15)
    if dry_run:
        show.line("dry run: nothing was recorded or pushed")


def _show_who(judgement: Judgement, settings: Settings) -> None:
    """Who is asked how much, and why not more."""
    from hitl.cli import standing

    for text in standing.asked(standing.queues_of(judgement.plan, settings.crew.expire_hours, time.time())):
        show.line(text)
    for said, key in (("nothing is asked", "idle"), ("left aside", "lacking")):
        if judgement.metrics.get(key):
            show.line(f"{said}: {judgement.metrics[key]}")
            return


def push(config: Path, dry_run: bool, verify: bool, as_json: bool) -> None:
    """Send what is not confirmed yet, or look at everything again."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if dry_run:
            _show_operations(store.pending(settings.name), as_json)
            return
        with store.lease(settings.name) as lease:
            receipts = tuple(cycle.push(lease, store, connector, progress, verify=verify))
    _show_receipts(receipts, as_json)


def _show_operations(operations: list[Operation], as_json: bool) -> None:
    rows = [{"kind": o.kind, "key": o.key, "size": len(next(iter(o.payload.values()), ()))} for o in operations]
    if as_json:
        show.as_json({"dry_run": True, "operations": rows})
        return
    for row in rows:
        show.line(f"would push {row['kind']} {row['key']} ({row['size']} entries)")
    if not rows:
        show.line("nothing to push: the platform is as planned")


def _show_receipts(receipts: tuple[Any, ...], as_json: bool) -> None:
    rows = [
        {"kind": r.operation.kind, "key": r.operation.key, "changed": r.changed, "detail": r.detail} for r in receipts
    ]
    if as_json:
        show.as_json({"operations": rows})
        return
    for row in rows:
        show.line(f"{row['kind']} {row['key']}: {row['changed']} changed {row['detail']}".rstrip())
    if not rows:
        show.line("nothing to push: the platform is as planned")


def run(config: Path, dry_run: bool, as_json: bool) -> None:
    """One cycle; dry: pull is skipped as well, and nothing is written anywhere."""
    from hitl import cycle

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if dry_run:
            judgement = cycle.judge(settings, store, connector.questions(), progress)
            _show_plan(judgement, settings, as_json, dry_run)
            return
        report = cycle.run(settings, store, connector, progress)
    if as_json:
        pulled = asdict(report.pulled)
        show.as_json(
            {
                "pulled": pulled,
                "metrics": report.judgement.metrics,
                "asks": len(report.judgement.plan.asks),
                "operations": len(report.receipts),
                "changed": report.changed,
            }
        )
        return
    pulled_line = f"{report.pulled.changed:,} rows changed, {report.pulled.deleted:,} deleted"
    show.line(f"pulled {report.pulled.items:,} items: {pulled_line}")
    show.line(f"planned {report.judgement.plan}")
    _show_who(report.judgement, settings)
    operations, changes = show.counted(len(report.receipts), "operation"), show.counted(report.changed, "change")
    show.line(f"pushed {operations}, {changes} on the platform")
    _problems(report.pulled.problems)


def status(config: Path, as_json: bool) -> None:
    """Where the project stands."""
    from hitl.cli import standing

    with stored(config) as (settings, store):
        standing.status(settings, store, as_json)


def export(config: Path, output: Path, annotators: Path | None, annotations: Path | None, question: str | None) -> None:
    """Write the results of the last cycle."""
    from hitl import cycle

    with opened(config) as (settings, store, connector):
        latest = store.latest(settings.name)
        if latest is None:
            raise BadSettings("export: no cycle yet; run `hitl run` (or `hitl plan`) first")
        results, _ = latest
        chosen = results if question is None else {question: _pick(results, question)}
        _write(chosen, output, annotators)
        if annotations is not None:
            known = cycle.stored_evidence(store, settings.name, connector.questions())
            for name in chosen:
                known[name].annotations.write(of_question(annotations, name, len(chosen)))
    show.line(f"wrote {output}")


def _pick(results: dict[str, Consensus], question: str) -> Consensus:
    if question not in results:
        raise BadSettings(f"--question {question!r} is not one of {', '.join(results)}")
    return results[question]


def _write(results: Any, output: Path | None, annotators: Path | None) -> None:
    import pyarrow as pa

    from hitl.files import require_writable, write_table

    require_writable(output, annotators)
    for name, result in results.items():
        if output is not None:
            result.write(of_question(output, name, len(results)))
        if annotators is not None:
            frame = result.annotators.frame()
            people = pa.Table.from_pandas(frame, preserve_index=False)
            write_table(of_question(annotators, name, len(results)), people)


def of_question(path: Path, question: str, questions: int) -> Path:
    """One file a question: labels.csv becomes labels.<question>.csv where there are several."""
    if questions == 1:
        return path
    safe = "".join(c if c.isalnum() or c in "-_=" else "_" for c in question)
    return path.with_name(f"{path.name.split('.')[0]}.{safe}{''.join(path.suffixes)}")


def report(config: Path, output: Path) -> None:
    """Write the page."""
    from hitl.files import require_folder
    from hitl.report import write
    from hitl.report.stored import stored_report

    require_folder(output)

    with opened(config) as (settings, store, connector):
        write(stored_report(settings, store, connector.questions()), output)
    show.line(f"wrote {output}")


def add(config: Path, items: Path, item: str, dry_run: bool) -> None:
    """Queue new items and push them."""
    from hitl.exchange import Operation
    from hitl.files import read_table, require_columns

    table = read_table(items, [item])
    require_columns(table, [item], str(items))
    rows = [{"key": row.pop(item), "data": row} for row in table.to_pylist()]
    if any(not row["key"] for row in rows):
        raise BadSettings(f"{items}: a row without {item}; every new item needs a name of its own")
    _send(config, Operation("add_items", items.name, {"items": rows}), dry_run)


def gold(config: Path, truth: Path, question: str | None, dry_run: bool) -> None:
    """Queue known truth and push it."""
    from hitl.exchange import Operation
    from hitl.files import read_table, require_columns

    table = read_table(truth, ["item", "label"])
    require_columns(table, ["item", "label"], str(truth))
    with opened(config) as (_, _, connector):
        asked = {one.name: one for one in connector.questions()}
    name = question or next(iter(asked))
    if name not in asked or (question is None and len(asked) > 1):
        raise BadSettings(f"--question: expected one of {', '.join(asked)}")
    labels = dict(zip(table.column("item").to_pylist(), table.column("label").to_pylist(), strict=True))
    if len(labels) < table.num_rows:
        raise BadTable(f"{truth}: an item appears twice; expected one row each")
    wrong = [label for label in labels.values() if label not in asked[name].classes]
    if wrong:
        raise BadTable(f"{truth}: label {wrong[0]!r} is not one of {asked[name].classes}")
    _send(config, Operation("gold", name, {"questions": {name: labels}}), dry_run, (labels, truth))


def _send(config: Path, operation: Operation, dry_run: bool, about: tuple[Collection[str], Path] | None = None) -> None:
    """Push one operation; the items it is `about`, of a file, must be there."""
    from hitl import cycle

    with opened(config) as (settings, store, connector):
        if dry_run:
            if about and store.counts(settings.name)["items"]:  # else nothing was pulled yet, and nothing is known
                _need_items(_strangers(store, settings.name, about[0]), about[1])
            _show_operations([operation], False)
            return
        with store.lease(settings.name) as lease:
            store.check(lease)
            if about and _strangers(store, settings.name, about[0]):
                _problems(cycle.pull(lease, store, connector).problems)  # they may be new
                _need_items(_strangers(store, settings.name, about[0]), about[1])
            receipts = tuple(connector.push([operation]))
    _show_receipts(receipts, False)


def _strangers(store: Store, project: str, items: Collection[str]) -> list[str]:
    known = set(store.items(project).column("item").to_pylist())
    return [name for name in items if name not in known]


def _need_items(strangers: list[str], where: Path) -> None:
    if strangers:
        more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        raise BadTable(
            f"{where}: item {strangers[0]!r}{more} is not in the project, nothing was sent; expected the names that "
            "`hitl export` writes, or `hitl add` it first"
        )
