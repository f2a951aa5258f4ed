"""`hitl annotators`: what a lead wants to know of annotators, for files and for a project."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import Json, Output, SavedConsensus, examples, grouped
from hitl.cli.profiles import UNKNOWN, Profiler, figure, percent, profile, within

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from hitl.consensus import Consensus
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
    consensus: SavedConsensus = None,
    output: Output = None,
    rows: Annotated[int, typer.Option(help="How many to show, those to look into first.", min=1)] = 30,
    as_json: Json = False,
) -> None:
    """How often each annotator is right, how each errs, who changed over time, and who decides alike."""
    profile(Profiler("annotators", _fit, _frame, _data, _show), given, consensus, output, rows, as_json)


def _fit(evidence: Evidence, consensus: Consensus) -> AnnotatorProfiles:
    from hitl.models.analysis.annotator_profile import AnnotatorProfiler

    return AnnotatorProfiler().fit(evidence, consensus)


def _frame(found: AnnotatorProfiles) -> pd.DataFrame:
    """Most labels first."""
    return found.frame().sort_values("labels", ascending=False, kind="stable")


def _data(found: AnnotatorProfiles) -> dict[str, Any]:
    prototypes = found.communities.prototype.round(4).tolist()
    rows = _frame(found)
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


def _memberships(found: AnnotatorProfiles, annotator: int) -> dict[str, float]:
    return {str(g + 1): share for g, share in found.communities.of(annotator)}


def _windows(found: AnnotatorProfiles, annotator: int) -> list[dict[Any, Any]]:
    """Accuracy over time, one entry a window."""
    import pandas as pd

    change = found.changes[annotator]
    return [] if change is None else pd.DataFrame(vars(change.windows)).to_dict("records")


def _show(question: str, found: AnnotatorProfiles, rows: int) -> None:
    """The table of annotators, those to look into first, and what they have in common."""
    from rich.console import Console

    wide = Console().width >= WIDE
    names = sorted(_frame(found).index, key=lambda k: not found.flags(k))
    few = f" ({rows} of {len(names):,}; --rows shows more, --output writes all)" if len(names) > rows else ""
    title = f"Annotators{f': {question}' if question else ''}{few}"
    figures = ("labels", "accuracy (95 %)", "bits", *(["agrees"] if wide else []))
    words = ("annotator", "group", "what to look into, typical errors")
    shown = [_row(found, k, wide) for k in names[:rows]]
    show.table(title, (words[0], *figures, *words[1:]), shown, words, gap=2 if wide else 1)
    for text in _summary(found):
        show.line(text)


def _row(found: AnnotatorProfiles, annotator: int, wide: bool) -> list[str | Text]:
    from rich.text import Text

    people, (low, high) = found.people, found.people.interval
    words = [Text(flag, "bold") for flag in found.flags(annotator)]
    words += [Text(str(confusion)) for confusion in found.confusions[annotator][:SHOWN]]
    return [
        str(found.names[annotator]),
        f"{people.labels[annotator]:,}",
        within(people.accuracy[annotator], low[annotator], high[annotator], 0),
        f"{found.bits[annotator]:.2f}",
        *([percent(float(found.agrees[annotator]), 0)] if wide else []),
        _groups(found, annotator),
        Text("\n").join(words),
    ]


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
            f"Agreement: Krippendorff's alpha {figure(together.alpha)} ({figure(together.low)} to "
            f"{figure(together.high)}), Fleiss' kappa {figure(together.fleiss)}, mean of Cohen's kappa "
            f"{figure(together.cohen)} over {together.pairs:,} pairs; two labels of an item are equal: "
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
