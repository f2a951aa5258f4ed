"""`hitl combine` over files: no project, no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hitl.errors import BadSettings, BadTable

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence


@dataclass(frozen=True)
class Columns:
    """Which columns of the annotations are what; `annotator` None: nobody has an id."""

    item: str
    annotator: str | None
    label: str
    time: str | None


def names(text: str | None) -> tuple[str, ...] | None:
    """Comma-separated names."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def refuse_flags(given: dict[str, object], command: str = "combine") -> None:
    """Raise BadSettings for flags that mean something with a file only; a project has its settings."""
    if given:
        raise BadSettings(
            f"{command}: {', '.join(given)} needs an annotations file; a project is combined as its hitl.toml says"
        )


def judged(
    command: str,
    evidence: Evidence,
    method: str | None,
    consensus: Path | None,
    output: Path | None,
    inputs: Sequence[Path],
) -> Consensus:
    """The saved consensus, or one made here by the method. Raises BadSettings for both, or an output over an input."""
    from hitl.consensus import Consensus
    from hitl.files import require_distinct, require_writable
    from hitl.models.registry import combiner

    require_writable(output)
    require_distinct([output], [*inputs, *([consensus] if consensus else [])])
    if method is not None and consensus is not None:
        raise BadSettings(
            f"{command}: --method and --consensus exclude each other; a saved consensus was judged already"
        )
    return combiner(method or "default").fit(evidence) if consensus is None else Consensus.load(consensus)


def read_evidence(  # type: ignore[no-untyped-def]
    annotations: Path,
    probabilities: list[str],
    truth: Path | None,
    columns: Columns,
    classes: tuple[str, ...] | None,
    options: tuple[str, ...] | None,
    strict: bool,
    items: Path | None = None,
):
    """The evidence of the files named on the command line; `items` names the rows of arrays that do not."""
    from hitl.evidence import Evidence
    from hitl.files import read_table
    from hitl.probabilities import read_probabilities

    if options is not None and classes is None:
        raise BadSettings("--options needs --classes: which of the answers are classes, which only answers?")
    text = [name for name in (columns.item, columns.annotator, columns.label) if name]
    order = None if items is None else item_order(items, columns.item)
    models = {}
    for entry in probabilities:
        model, equals, file = entry.partition("=")
        if not equals or not model or not file:
            raise BadSettings(f"--probabilities {entry!r}: expected MODEL=FILE, for instance resnet=probs.csv")
        if model in models:
            raise BadSettings(f"--probabilities: model {model!r} is given twice")
        models[model] = read_probabilities(file, columns.item, items=order, classes=classes)
    table = read_table(annotations, text)
    if table.num_rows == 0:
        raise BadTable(f"{annotations}: the table is empty; expected one row an annotation")
    return Evidence.from_tables(
        table,
        models,
        None if truth is None else read_table(truth, text),
        item=columns.item,
        label=columns.label,
        annotator=columns.annotator,
        time=columns.time,
        classes=classes,
        options=options,
        strict=strict,
    )


def item_order(table: Path, item: str) -> list[str]:
    """The items of a table, in order: the names of the rows of an array without names."""
    from hitl.files import read_table, require_columns

    found = read_table(table, [item])
    require_columns(found, [item], str(table))
    order: list[str] = found.column(item).to_pylist()
    return order


def tables(annotations: Path, truth: Path | None, probabilities: Sequence[str] | None) -> list[Path]:
    """The files named on the command line that are read."""
    models = [Path(entry.partition("=")[2]) for entry in probabilities or []]
    return [annotations, *([truth] if truth else []), *models]


def combine(  # type: ignore[no-untyped-def]
    evidence,
    method: str,
    output: Path | None,
    annotators: Path | None,
    save: Path | None,
    as_json: bool,
    inputs: Sequence[Path],
) -> None:
    """Combine, write what was asked for over none of the `inputs`, and show a summary."""
    from hitl.cli import show
    from hitl.files import require_distinct, require_folder, require_writable, write_table
    from hitl.models.registry import combiner

    require_writable(output, annotators)
    require_distinct([output, annotators, save], inputs)
    if save is not None:
        require_folder(save)
    consensus = combiner(method).fit(evidence)
    people = consensus.annotators.frame().sort_values("labels", ascending=False)
    if output is not None:
        consensus.write(output)
    if annotators is not None:
        import pyarrow as pa

        write_table(annotators, pa.Table.from_pandas(people, preserve_index=False))
    if save is not None:
        consensus.save(save)
    if as_json:
        fit = {
            **asdict(consensus.fit),
            "objective": consensus.fit.objective[-1:],
            "iterations": consensus.fit.iterations,
        }
        written = {"consensus": output, "annotators": annotators, "saved": save}
        summary = {
            "items": len(consensus.items),
            "annotators": evidence.annotations.n_annotators,
            "labels": len(evidence.annotations),
            "classes": consensus.classes,
            "confidence": float(consensus.confidence.mean()),
            "temperatures": consensus.temperatures,
            "fit": fit,
            "written": {name: str(path) for name, path in written.items() if path is not None},
        }
        show.as_json(summary)
        return
    chosen = consensus.fit.settings.get("method")
    method = consensus.fit.method + (f" ({chosen})" if chosen else "")
    converged = "" if consensus.fit.converged else f"; {_why_not_converged(consensus.fit)}"
    show.line(f"{evidence.annotations!r}")
    show.line(
        f"{method}: {consensus.fit.iterations} iterations in {consensus.fit.seconds:.2f} s{converged}; "
        f"mean confidence {consensus.confidence.mean():.3f}"
    )
    if output is None:
        show.table("Consensus", consensus.frame())
    if annotators is None:
        show.table("Annotators", people, 10)
    for path in (output, annotators, save):
        if path is not None:
            show.line(f"wrote {path}")


def _why_not_converged(fit) -> str:  # type: ignore[no-untyped-def]
    if fit.mixing is None:
        return "NOT converged (raise max_iterations)"
    worst = max(fit.mixing.rhat, key=lambda quantity: fit.mixing.rhat[quantity])
    return f"chains have NOT mixed: R-hat {fit.mixing.rhat[worst]:.2f} of {worst} (raise burn_in and draws)"
