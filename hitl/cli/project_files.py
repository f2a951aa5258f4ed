"""Define the commands of a project that read or write files: new items, ground truth, labels, a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.evidence import Given, annotator_table, files_for, require_unread, write_tables
from hitl.cli.options import HERE, AnnotatorsOutput, Config, DryRun, OneQuestion, SavedConsensus, grouped, opt
from hitl.cli.project import show_operations, show_receipts
from hitl.errors import BadSettings
from hitl.project import opened, stored

if TYPE_CHECKING:
    from hitl.platform import Operation


def add(
    items: Annotated[Path, typer.Argument(help="Table with the column item and columns for annotators to see.")],
    item: Annotated[str, opt("Column that names the item.")] = "item",
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Add new items to the platform. Items that exist are skipped."""
    from hitl.manual_operations import new_items
    from hitl.tables.read import read_table

    _send(config, new_items(read_table(items, [item]), item, str(items)), str(items), dry_run)


def gold(
    truth: Annotated[
        Path,
        typer.Argument(
            help="Table with columns item and label: known answers. Several labels of a multiple choice: art,law."
        ),
    ],
    question: OneQuestion = None,
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Add gold items: send known answers to the platform, to check and calibrate annotators."""
    from hitl.manual_operations import known_truth
    from hitl.tables.columns import as_text, with_names
    from hitl.tables.read import read_table

    table = with_names(read_table(truth, ["item"]), ["label"], as_text)  # classes are those of the platform, as written
    with opened(config) as (_, _, connector):
        questions = connector.questions()
    _send(config, known_truth(table, questions, question, str(truth)), str(truth), dry_run)


def _send(config: Path, operation: Operation, where: str, dry_run: bool) -> None:
    from hitl.manual_operations import on_platform, send

    with opened(config) as (settings, store, connector), show.progress() as progress:
        if dry_run:
            if store.counts(settings.name)["items"]:  # otherwise nothing was pulled yet, and every item is unknown
                operation = on_platform(settings, store, operation, where)
            show_operations([operation])
            return
        sent = send(settings, store, connector, operation, where, progress)
    show.problems(sent.problems)
    show_receipts(sent.receipts)


def export(
    file: Annotated[Path | None, typer.Argument(help="Consensus table to write (CSV, JSON Lines, Parquet).")] = None,
    output: Annotated[Path | None, opt("The same as FILE.", "--output", "-o")] = None,
    annotators_output: AnnotatorsOutput = None,
    annotations: Annotated[Path | None, opt("Also write all annotations to this file.")] = None,
    asked: Annotated[
        Path | None, opt("Also write every question ever planned, with its probability, to this file.")
    ] = None,
    question: OneQuestion = None,
    config: Config = HERE,
) -> None:
    """Write the labels of the last run: one row per item, with its confidence and number of answers."""
    from hitl.export import asked_table, label_tables
    from hitl.inputs_digest import result_changed
    from hitl.kinds.kind import by_control, kind_of, multiple_choices
    from hitl.operations import Judgement
    from hitl.project import item_names, stored_evidence, stored_questions
    from hitl.tables.write import require_writable, write_table

    given = [each for each in (file, output) if each is not None]
    if len(given) != 1:
        raise BadSettings("export: expected one file to write: `hitl export labels.csv`, or the same with -o")
    (output,) = given
    require_writable(output, annotators_output, annotations, asked)
    with stored(config) as (settings, store):
        latest = store.latest(settings.name)
        if latest is None:
            raise BadSettings("export: no run yet; run `hitl run` (or `hitl plan`) first")
        results, last = latest
        controls = multiple_choices({name: result.classes for name, result in results.items()})
        if question is not None and question not in {*results, *controls}:
            raise BadSettings(f"--question {question!r} is not one of {', '.join({**controls, **results})}")
        own_ids = item_names(settings, store)
        evidence = stored_evidence(settings, store, stored_questions(settings, store))
        wanted = results if question is None else controls.get(question, {question: question}).values()
        layers = [name for name, one in evidence.items() if one.parts and one.parts.question.name == question]
        chosen = {name: results[name] for name in layers or wanted if name in results}
        gone = [name for name in chosen if name not in evidence]
        if gone:
            raise BadSettings(f"export: the project no longer asks {', '.join(gone)}; run `hitl run` first")
        evidence = {name: evidence[name] for name in chosen}
        summary = store.last_cycle(settings.name)
        assert summary is not None
        if summary.basis is not None and result_changed(settings, store):
            show.warning("labels, settings or files have changed since the last run and are not in it: run `hitl run`")
        judgement = Judgement(evidence, chosen, last, done=store.done_by_question(settings.name))
        tables = label_tables(judgement, store.items(settings.name), own_ids)
        answered = {one.parts.question.name if one.parts else name: one for name, one in evidence.items()}
        files, raw = files_for(output, tables), files_for(annotations, answered)
        people = files_for(annotators_output, chosen)
        written = [*files.values(), *people.values(), asked, *raw.values()]
        require_unread(config, settings, written)
        answer_tables = {name: kind_of(answered[name]).answers(answered[name], own_ids) for name in raw}
        as_of = f"{summary.recorded_at:%Y-%m-%d %H:%M} UTC"
        fits = {name: group[0].consensus.fit for name, group in by_control(evidence, chosen).items()}
        write_tables(output, {name: fits[name].stamp(table, as_of=as_of) for name, table in tables.items()})
        write_tables(annotators_output, {name: annotator_table(result) for name, result in chosen.items()})
        if asked is not None:
            write_table(asked, asked_table(store.asks(settings.name), own_ids))
        write_tables(annotations, answer_tables)
    age = f"labels as of {as_of}, the last run"
    show.result({}, [*show.wrote(written), age], as_json=False)


@grouped
def report(
    given: Given,
    output: Annotated[Path, opt("One self-contained HTML file.", "--output", "-o")] = Path("hitl-report.html"),
    consensus: SavedConsensus = None,
    config: Config = HERE,
) -> None:
    """Write an HTML report: the state of the project, who needs training, contested items, the plan."""
    from hitl.project import stored_questions
    from hitl.report import QuestionPage, Report, write
    from hitl.report.stored import stored_report
    from hitl.status import as_of
    from hitl.tables.write import require_place

    require_place(output)
    lines: list[str] = []
    if given.annotations is None:
        given.need_project("report", config, consensus=consensus)
        with stored(config) as (settings, store):
            require_unread(config, settings, [output])
            page = stored_report(settings, store, stored_questions(settings, store))
            pages = store.workplaces(settings.name)
            page = replace(page, links={} if pages is None else pages.links)
            lines = [as_of(store, settings.name)]
    else:
        question = QuestionPage("label", *given.judged("report", consensus, [output]))
        page = Report(given.annotations.stem, (question,), command=f"hitl report {given.annotations}")
    write(page, output)
    show.result({}, [*show.wrote([output]), *lines], as_json=False)
