"""Define `hitl annotators`: profiles of annotators, for files and for a project."""

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
"""Minimum terminal width, in columns, to show all figures."""

SHOWN = 2
"""Typical errors per annotator in the table. --output and --json have all of them."""

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


def _frame(profiles: AnnotatorProfiles) -> pd.DataFrame:
    """Return one row per annotator, most labels first."""
    return profiles.frame().sort_values("labels", ascending=False, kind="stable")


def _data(profiles: AnnotatorProfiles) -> dict[str, Any]:
    import pandas as pd

    communities, frame, rows = profiles.communities, _frame(profiles), []
    for k, row in zip(frame.index.tolist(), frame.to_dict("records"), strict=True):
        change = profiles.changes[k]
        rows.append(
            row
            | {
                "confusions": [asdict(confusion) for confusion in profiles.confusions[k]],
                "flags": profiles.flags(k),
                "community": communities.main[k] + 1 or None,
                "communities": {str(g + 1): share for g, share in communities.of(k)},
                "windows": [] if change is None else pd.DataFrame(vars(change.windows)).to_dict("records"),
            }
        )
    prototypes = communities.prototype.round(4).tolist()
    return {
        "classes": profiles.people.classes,
        "options": profiles.people.options,
        "entropy": profiles.entropy,
        "agreement": asdict(profiles.agreement),
        "ways_to_answer": dict(zip(("works", "spams", "misleads"), profiles.ways.shares.tolist(), strict=True)),
        "communities": [
            {"community": g, **asdict(kind), "prototype": prototype}
            for g, (kind, prototype) in enumerate(zip(profiles.kinds(), prototypes, strict=True), start=1)
        ],
        "annotators": rows,
    }


def _show(question: str, profiles: AnnotatorProfiles, rows: int) -> None:
    """Print the table of annotators, flagged ones first, and a summary of the crowd."""
    from rich.console import Console

    wide = Console().width >= WIDE
    order = sorted(_frame(profiles).index, key=lambda k: not profiles.flags(k))
    few = f" ({rows} of {len(order):,}; --rows shows more, --output writes all)" if len(order) > rows else ""
    title = f"Annotators{f': {question}' if question else ''}{few}"
    figures = ("labels", "accuracy (95 %)", "bits", *(["agrees"] if wide else []))
    words = ("annotator", "group", "what to look into, typical errors")
    shown = [_row(profiles, k, wide) for k in order[:rows]]
    show.table(title, (words[0], *figures, *words[1:]), shown, words, gap=2 if wide else 1)
    for text in _summary(profiles):
        show.line(text)


def _row(profiles: AnnotatorProfiles, annotator: int, wide: bool) -> list[str | Text]:
    from rich.text import Text

    people, (low, high) = profiles.people, profiles.people.interval
    words = [Text(flag, "bold") for flag in profiles.flags(annotator)]
    words += [Text(str(confusion)) for confusion in profiles.confusions[annotator][:SHOWN]]
    groups = profiles.communities.of(annotator)
    if len(groups) < 2:
        group = str(groups[0][0] + 1) if groups else UNKNOWN
    else:
        group = "\n".join(f"{g + 1}: {share * 100:.0f} %" for g, share in groups)
    return [
        str(profiles.names[annotator]),
        f"{people.labels[annotator]:,}",
        within(people.accuracy[annotator], low[annotator], high[annotator], 0),
        f"{profiles.bits[annotator]:.2f}",
        *([percent(float(profiles.agrees[annotator]), 0)] if wide else []),
        group,
        Text("\n").join(words),
    ]


def _summary(profiles: AnnotatorProfiles) -> list[str]:
    agreement, lines = profiles.agreement, []
    if agreement.items:
        lines.append(
            f"Agreement: Krippendorff's alpha {figure(agreement.alpha)} ({figure(agreement.low)} to "
            f"{figure(agreement.high)}), Fleiss' kappa {figure(agreement.fleiss)}, mean of Cohen's kappa "
            f"{figure(agreement.cohen)} over {agreement.pairs:,} pairs; two labels of an item are equal: "
            f"{percent(agreement.observed, 0)} ({agreement.items:,} items with two labels or more)"
        )
    lines.append(
        f"Bits: what one label tells of the class, of {profiles.entropy:.2f} that are missing before any label"
    )
    for g, kind in enumerate(profiles.kinds(), start=1):
        size = show.counted(kind.size, "annotator")
        lines.append(f"Group {g}: {size}, {kind.accuracy * 100:.0f} % right, {kind.bits:.2f} bits; {kind.words}")
    total, few = len(profiles.names), int((profiles.communities.main < 0).sum())
    if few:
        lines.append(f"{UNKNOWN}: {few:,} of {total:,} annotators have too few labels to be in a group")
    flagged = sum(bool(profiles.flags(k)) for k in range(total))
    lines.append(f"To look into: {flagged:,} of {total:,} annotators" if flagged else "No annotator to look into")
    return lines
