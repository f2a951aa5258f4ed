"""`hitl annotators`: what a lead wants to know of annotators, for files and for a project."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import Consensus, Json, Output, examples, grouped
from hitl.cli.profiles import UNKNOWN, percent, profile

if TYPE_CHECKING:
    import pandas as pd

    from hitl.evidence import Evidence
    from hitl.models.analysis.annotator_profile import AnnotatorProfiles

WIDE = 100
"""Columns from which a terminal has room for all figures."""

SHOWN = 2
"""Typical errors of one annotator in the table; --output and --json have all."""

EXAMPLES = examples(
    "hitl annotators annotations.csv --time when",
    "hitl annotators annotations.csv --consensus consensus.npz --output people.csv",
    "hitl annotators --json  # inside a project",
)


@grouped
def annotators(
    given: Given,
    consensus: Consensus = None,
    output: Output = None,
    rows: Annotated[int, typer.Option(help="How many to show.", min=1)] = 30,
    as_json: Json = False,
) -> None:
    """How often each annotator is right, how each errs, who changed over time, and who decides alike."""
    profile(_Annotators(), given, consensus, output, rows, as_json)


class _Annotators:
    command, needs_models = "annotators", False

    def fit(self, evidence: Evidence, consensus: Any) -> AnnotatorProfiles:
        from hitl.models.analysis.annotator_profile import AnnotatorProfiler

        return AnnotatorProfiler().fit(evidence, consensus)

    def frame(self, found: AnnotatorProfiles) -> pd.DataFrame:
        """Most labels first."""
        return found.frame().sort_values("labels", ascending=False, kind="stable")

    def data(self, found: AnnotatorProfiles) -> dict[str, Any]:
        prototypes = found.communities.prototype.round(4).tolist()
        rows = self.frame(found)
        return {
            "classes": found.people.classes,
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

    def show(self, question: str, found: AnnotatorProfiles, rows: int) -> None:
        _show(f"Annotators: {question}" if question else "Annotators", found, rows)


def _memberships(found: AnnotatorProfiles, annotator: int) -> dict[str, float]:
    return {str(g + 1): share for g, share in found.communities.of(annotator)}


def _windows(found: AnnotatorProfiles, annotator: int) -> list[dict[str, Any]]:
    """Accuracy over time, one entry a window."""
    change = found.changes[annotator]
    if change is None:
        return []
    fields = {name: values.tolist() for name, values in vars(change.windows).items()}
    return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]


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
            *([percent(float(found.agrees[k]), 0)] if wide else []),
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
            f"{percent(together.observed, 0)} ({together.items:,} items with two labels or more)"
        )
    lines.append(f"Bits: what one label tells of the class, of {found.entropy:.2f} that are missing before any label")
    for g, kind in enumerate(found.kinds(), start=1):
        people = show.counted(kind.size, "annotator")
        lines.append(f"Group {g}: {people}, {kind.accuracy * 100:.0f} % right, {kind.bits:.2f} bits; {kind.words}")
    few = int((found.communities.main < 0).sum())
    if few:
        lines.append(f"{UNKNOWN}: {few:,} of {len(found.names):,} annotators have too few labels to be in a group")
    flagged = sum(bool(found.flags(k)) for k in range(len(found.names)))
    lines.append(
        f"To look into: {flagged:,} of {len(found.names):,} annotators" if flagged else "No annotator to look into"
    )
    return lines


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else UNKNOWN
