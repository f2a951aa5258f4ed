"""`hitl annotators`: what a lead wants to know of people, for files and for a project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cli import show
from hitl.cli.files import judged
from hitl.cli.project import of_question
from hitl.project import opened

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.analysis.annotator_profile import AnnotatorProfiles
    from hitl.settings import Settings
    from hitl.store import Store

UNKNOWN = "–"
WIDE = 100
"""Columns from which a terminal has room for all figures."""

SHOWN = 2
"""Typical errors of one annotator in the table; --output and --json have all."""


def of_files(
    evidence: Evidence,
    method: str | None,
    consensus: Path | None,
    output: Path | None,
    rows: int,
    as_json: bool,
    inputs: Sequence[Path],
) -> None:
    """Profile the people of a table, by a saved consensus or one made here."""
    by = judged("annotators", evidence, method, consensus, output, inputs)
    found = _profiles(evidence, by)
    if output is not None:
        _write(found, output)
    if as_json:
        show.as_json(_data(found, by) | {"written": {} if output is None else {"annotators": str(output)}})
        return
    show.line(f"{evidence.annotations!r}, judged by {by.fit.method}")
    _show("Annotators", found, rows)
    if output is not None:
        show.line(f"wrote {output}")


def of_project(config: Path, output: Path | None, rows: int, as_json: bool) -> None:
    """Profile the people of a project, by the consensus of its last cycle where that is still over what is stored."""
    from hitl.files import require_writable

    require_writable(output)
    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        from hitl import cycle

        evidence = cycle.stored_evidence(store, settings.name, connector.questions())
        results, of_cycle = stored_results(settings, store, evidence, progress)
    found = {name: _profiles(evidence[name], results[name]) for name in evidence}
    written = {}
    if output is not None:
        written = {name: str(of_question(output, name, len(found))) for name in found}
        for name, profiles in found.items():
            _write(profiles, Path(written[name]))
    if as_json:
        questions = {name: _data(profiles, results[name]) for name, profiles in found.items()}
        show.as_json({"project": settings.name, "questions": questions, "written": written})
        return
    show.line("judged by the last cycle" if of_cycle else "combined now: something changed since the last cycle")
    for name, profiles in found.items():
        _show(f"Annotators: {name}", profiles, rows)
    for path in written.values():
        show.line(f"wrote {path}")


def stored_results(settings: Settings, store: Store, evidence: dict[str, Evidence], progress: Any) -> tuple[Any, bool]:
    """The consensus of each question, and whether it is that of the last cycle."""
    from hitl.models.registry import combiner

    latest = store.latest(settings.name)
    if latest is not None and all(_is_over(latest[0].get(name), known) for name, known in evidence.items()):
        return latest[0], True
    method = combiner(settings.combine.method, **settings.combine.options)
    results = {}
    for position, (name, known) in enumerate(evidence.items(), start=1):
        results[name] = method.fit(known)
        progress("combine", position, len(evidence))
    return results, False


def _is_over(consensus: Consensus | None, evidence: Evidence) -> bool:
    """Whether a consensus is over the same items, people and options, with as many labels each."""
    annotations = evidence.annotations
    return consensus is not None and (
        consensus.items == annotations.items
        and consensus.annotators.names == annotations.annotators
        and consensus.annotators.options == annotations.options
        and bool((consensus.annotators.labels == annotations.labels_per_annotator).all())
    )


def _profiles(evidence: Evidence, consensus: Consensus) -> AnnotatorProfiles:
    from hitl.models.analysis.annotator_profile import AnnotatorProfiler

    return AnnotatorProfiler().fit(evidence, consensus)


def _write(found: AnnotatorProfiles, output: Path) -> None:
    import pyarrow as pa

    from hitl.files import write_table

    frame = found.frame().sort_values("labels", ascending=False, kind="stable")
    write_table(output, pa.Table.from_pandas(frame, preserve_index=False))


def _data(found: AnnotatorProfiles, consensus: Consensus) -> dict[str, Any]:
    """Everything, as JSON values; what is not known is null."""
    prototypes = found.communities.prototype.round(4).tolist()
    rows = found.frame().sort_values("labels", ascending=False, kind="stable")
    data: dict[str, Any] = plain(
        {
            "method": consensus.fit.method,
            "classes": consensus.classes,
            "options": found.people.options,
            "entropy": found.entropy,
            "agreement": asdict(found.agreement),
            "ways_to_answer": dict(zip(("works", "spams", "misleads"), found.ways.shares.tolist(), strict=True)),
            "communities": [
                {"community": g, **asdict(kind), "prototype": prototype}
                for g, (kind, prototype) in enumerate(zip(found.kinds(), prototypes, strict=True), start=1)
            ],
            "annotators": [
                {**row, "confusions": [asdict(one) for one in found.confusions[k]], "flags": found.flags(k)}
                | {"community": found.communities.main[k] + 1 or None, "communities": _memberships(found, k)}
                | {"windows": _windows(found, k)}
                for k, row in zip(rows.index, rows.to_dict("records"), strict=True)
            ],
        }
    )
    return data


def _memberships(found: AnnotatorProfiles, annotator: int) -> dict[str, float]:
    return {str(g + 1): share for g, share in found.communities.of(annotator)}


def _windows(found: AnnotatorProfiles, annotator: int) -> list[dict[str, Any]]:
    """Accuracy over time, one entry a window."""
    change = found.changes[annotator]
    if change is None:
        return []
    fields = {name: values.tolist() for name, values in vars(change.windows).items()}
    return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]


def plain(value: Any) -> Any:
    """JSON values: Python's own numbers, and null for what is not a number."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(title: str, found: AnnotatorProfiles, rows: int) -> None:
    """The table of people, most labels first, and what they have in common."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    wide = console.width >= WIDE
    order = sorted(range(len(found.names)), key=lambda k: -int(found.people.labels[k]))
    few = f" ({min(rows, len(order))} of {len(order):,}, most labels first)" if len(order) > rows else ""
    table = Table(title=title + few, box=box.SIMPLE_HEAD, padding=(0, 2 if wide else 1, 0, 0), pad_edge=False)
    table.add_column("annotator")
    for name in ("labels", "accuracy (95 %)", "bits", *(["agrees"] if wide else [])):
        table.add_column(name, justify="right")
    table.add_column("group")
    table.add_column("what to look into, typical errors", ratio=1)
    for k in order[:rows]:
        words = [f"[bold]{escape(flag)}[/bold]" for flag in found.flags(k)]
        words += [escape(str(confusion)) for confusion in found.confusions[k][:SHOWN]]
        table.add_row(
            escape(str(found.names[k])),
            f"{found.people.labels[k]:,}",
            _accuracy(found, k),
            f"{found.bits[k]:.2f}",
            *([_percent(float(found.agrees[k]))] if wide else []),
            escape(_groups(found, k)),
            "\n".join(words),
        )
    console.print(table)
    for text in _summary(found):
        show.line(text)


def _accuracy(found: AnnotatorProfiles, annotator: int) -> str:
    low, high = found.people.interval
    interval = f"({low[annotator] * 100:.0f}–{high[annotator] * 100:.0f})"
    return f"{found.people.accuracy[annotator] * 100:.0f} % {interval}"


def _groups(found: AnnotatorProfiles, annotator: int) -> str:
    groups = found.communities.of(annotator)
    if len(groups) < 2:
        return str(groups[0][0] + 1) if groups else UNKNOWN
    return "\n".join(f"{g + 1}: {share * 100:.0f} %" for g, share in groups)


def _summary(found: AnnotatorProfiles) -> list[str]:
    """The crowd in a few lines."""
    together = found.agreement
    lines = []
    if together.items:
        lines.append(
            f"Agreement: Krippendorff's alpha {_number(together.alpha)} ({_number(together.low)} to "
            f"{_number(together.high)}), Fleiss' kappa {_number(together.fleiss)}, mean of Cohen's kappa "
            f"{_number(together.cohen)} over {together.pairs:,} pairs; two labels of an item are equal: "
            f"{_percent(together.observed)} ({together.items:,} items with two labels or more)"
        )
    lines.append(f"Bits: what one label tells of the class, of {found.entropy:.2f} that are missing before any label")
    for g, kind in enumerate(found.kinds(), start=1):
        people = "1 person" if kind.size == 1 else f"{kind.size:,} people"
        lines.append(f"Group {g}: {people}, {kind.accuracy * 100:.0f} % right, {kind.bits:.2f} bits; {kind.words}")
    few = int((found.communities.main < 0).sum())
    if few:
        lines.append(f"{UNKNOWN}: {few:,} of {len(found.names):,} annotators have too few labels to be in a group")
    flagged = sum(bool(found.flags(k)) for k in range(len(found.names)))
    lines.append(f"To look into: {flagged:,} of {len(found.names):,} annotators" if flagged else "Nobody to look into")
    return lines


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else UNKNOWN


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %" if math.isfinite(value) else UNKNOWN
