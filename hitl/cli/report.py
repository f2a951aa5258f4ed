"""Define `hitl report`: a page with figures, for a file of labels or for a project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.evidence import Given, require_unread
from hitl.cli.options import SavedConsensus, examples, grouped

if TYPE_CHECKING:
    from hitl.report import Report

EXAMPLES = examples(
    "hitl report annotations.csv --output report.html",
    "hitl report annotations.csv --truth truth.csv --probabilities resnet=probs.csv",
    "hitl report  # inside a project",
)


@grouped
def report(
    given: Given,
    output: Annotated[Path, typer.Option("--output", "-o", help="One self-contained HTML file.")] = Path(
        "hitl-report.html"
    ),
    consensus: SavedConsensus = None,
) -> None:
    """Write a page with pictures: where it stands, who needs training, contested items, what is asked next."""
    from hitl.report import write
    from hitl.tables.files import require_distinct, require_folder

    require_folder(output)
    if given.annotations is None:
        given.need_project("report", consensus=consensus)
        page = _of_project(given.config, output)
    else:
        require_distinct([output], [*given.files, *([consensus] if consensus else [])])
        page = _of_file(given, given.annotations, consensus)
    write(page, output)
    show.wrote([output])


def _of_project(config: Path, output: Path) -> Report:
    from hitl.project import opened
    from hitl.report.stored import stored_report

    with opened(config) as (settings, store, connector):
        require_unread(config, settings, [output])
        report = stored_report(settings, store, connector.questions())
        return replace(report, links=connector.workplaces().links)


def _of_file(given: Given, annotations: Path, saved: Path | None) -> Report:
    """Use the saved consensus, or fit one by the method."""
    from hitl.cli.profiles import judged_files
    from hitl.report import QuestionPage, Report

    evidence, consensus = judged_files("report", given, saved)
    return Report(annotations.stem, (QuestionPage("label", evidence, consensus),), command=f"hitl report {annotations}")
