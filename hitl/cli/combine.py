"""`hitl combine`: labels from files, or from what a project has stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given, of_question
from hitl.cli.options import Json, examples, grouped

if TYPE_CHECKING:
    from hitl.consensus import Consensus, Fit

EXAMPLES = examples(
    "hitl combine annotations.csv --output consensus.csv",
    "hitl combine labels.parquet --method pl-em --probabilities resnet=probs.csv",
    "hitl combine  # inside a project",
)


@grouped
def combine(
    given: Given,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Consensus: item, label, confidence, p_<class>.")
    ] = None,
    annotators: Annotated[
        Path | None, typer.Option(help="Annotators: annotator, labels, accuracy, low, high (95 %).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the whole consensus (.npz) for Consensus.load.")] = None,
    as_json: Json = False,
) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    if given.annotations is None:
        given.need_project("combine", save=save)
        _project(given.config, output, annotators, as_json)
    else:
        _files(given, output, annotators, save, as_json)


def _files(given: Given, output: Path | None, annotators: Path | None, save: Path | None, as_json: bool) -> None:
    """Combine, write what was asked for over none of the files read, and show a summary."""
    from hitl.models.registry import combiner
    from hitl.tables.files import require_distinct, require_folder, require_writable

    evidence = given.evidence()
    require_writable(output, annotators)
    require_distinct([output, annotators, save], given.files)
    if save is not None:
        require_folder(save)
    consensus = combiner(given.method or "default").fit(evidence)
    write({"": consensus}, output, annotators)
    if save is not None:
        consensus.save(save)
    if as_json:
        written = {"consensus": output, "annotators": annotators, "saved": save}
        summary = {
            "items": len(consensus.items),
            "annotators": evidence.annotations.n_annotators,
            "labels": len(evidence.annotations),
            "classes": consensus.classes,
            "confidence": float(consensus.confidence.mean()),
            "temperatures": consensus.temperatures,
            "fit": _fit(consensus.fit),
            "written": {name: str(path) for name, path in written.items() if path is not None},
        }
        show.as_json(summary)
        return
    show.line(str(evidence))
    show.line(f"{consensus.fit}; mean confidence {consensus.confidence.mean():.3f}")
    _show("", consensus, output is None, annotators is None)
    show.wrote([output, annotators, save])


def _project(config: Path, output: Path | None, annotators: Path | None, as_json: bool) -> None:
    """Combine what is stored and show or write it; nothing is recorded."""
    from hitl import cycle
    from hitl.project import item_names, opened

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        names = item_names(settings, store)
        judgement = cycle.judge(settings, store, connector.questions(), progress).named(names)
    write(judgement.results, output, annotators)
    if as_json:
        show.as_json(judgement.metrics)
        return
    for name, result in judgement.results.items():
        _show(f": {name}", result, output is None, True)


def write(results: Mapping[str, Consensus], output: Path | None, annotators: Path | None) -> None:
    """The consensus of each question, and who its annotators are, as tables."""
    import pyarrow as pa

    from hitl.tables.files import require_writable, write_table

    require_writable(output, annotators)
    for name, result in results.items():
        if output is not None:
            result.write(of_question(output, name, len(results)))
        if annotators is not None:
            frame = result.annotators.frame().sort_values("labels", ascending=False)
            write_table(of_question(annotators, name, len(results)), pa.Table.from_pandas(frame, preserve_index=False))


def _show(title: str, consensus: Consensus, labels: bool, annotators: bool) -> None:
    if labels:
        show.frame(f"Consensus{title}", consensus.frame())
    if annotators:
        frame = consensus.annotators.frame().sort_values("labels", ascending=False)
        show.frame(f"Annotators{title}", frame, 10)


def _fit(fit: Fit) -> dict[str, Any]:
    return {**asdict(fit), "objective": fit.objective[-1:], "iterations": fit.iterations}
