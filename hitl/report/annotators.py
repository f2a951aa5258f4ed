"""Build the section on annotators: who needs review, who answers alike and who changed over time, with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np

from hitl.annotations import Floats, Names
from hitl.models.analysis.annotator_profile import AnnotatorProfiler, AnnotatorProfiles, CommunityProfile
from hitl.report import plots
from hitl.report.contents import QuestionPage
from hitl.report.plots import PERCENT, Figure, axis, figure, numbers, scatter, shown

GROUPS = 8
"""Maximum number of communities (groups) on the page, the largest first."""

MEMBERS = 12
"""Maximum number of annotators named per community."""

FOREST, MAP, LINES = 40, 80, 8
"""Maximum number of annotators in the forest plot, the similarity map, and the figure of accuracy over time."""


@dataclass(frozen=True, eq=False)
class AnnotatorsSection:
    """One question's annotators, for the template.

    Attributes:
        profiles: profiles of all annotators.
        flagged: codes of annotators who need review, most labels first.
        changed: codes of annotators who changed significantly over time, most labels first.
        groups: communities, each with the names of up to MEMBERS members, most labels first.
        figures: last part of the id -> figure.
    """

    profiles: AnnotatorProfiles
    flagged: tuple[int, ...]
    changed: tuple[int, ...]
    groups: tuple[tuple[CommunityProfile, Names], ...]
    figures: dict[str, Figure]


def annotators_section(page: QuestionPage) -> AnnotatorsSection | None:
    """Profile the annotators of a question.

    Return None if there are no labels, or if the consensus is about other annotators or options.
    """
    annotations, report = page.evidence.annotations, page.consensus.annotators
    same = annotations.annotators == report.names and annotations.options == report.options
    if not len(annotations) or not same:
        return None
    profiles = AnnotatorProfiler(least_accuracy=page.least_accuracy).fit(page.evidence, page.consensus)
    communities = profiles.communities
    order = np.argsort(-report.labels, kind="stable").tolist()
    changed = tuple(k for k in order if profiles.drifts[k])

    def members(group: int) -> Names:
        return tuple(profiles.names[k] for k in order if communities.main[k] == group)[:MEMBERS]

    groups = tuple((kind, members(group)) for group, kind in enumerate(profiles.kinds()[:GROUPS]))
    figures = {"forest": forest_figure(profiles)}
    if len(groups) > 1:  # a single group shows no contrast
        figures["similarity"] = similarity_figure(profiles)
        for group in range(len(groups)):
            prototype = prototype_figure(communities.prototype[group], report.classes, report.options)
            figures[f"group-{group + 1}"] = prototype
    if changed:
        figures["drift"] = drift_figure(profiles, changed)
    flagged = tuple(k for k in order if profiles.flags(k))
    return AnnotatorsSection(profiles, flagged, changed, groups, figures)


NAMED = 5
"""Maximum number of annotators in the sentence about training."""


def who_needs_training(section: AnnotatorsSection | None) -> str:
    """Return a sentence that names the annotators who need training, with accuracy, interval and reason."""
    if section is None:
        return "Can't tell yet: too few labels."
    profiles, (low, high) = section.profiles, section.profiles.people.interval
    needing = [k for k in section.flagged if profiles.needs_training(k)]
    if not needing:
        return "Nobody: every annotator is right about as often as most others."
    people = [
        f"{profiles.names[k]}, {profiles.people.accuracy[k] * 100:.0f} % right ({low[k] * 100:.0f} to "
        f"{high[k] * 100:.0f} %; {', '.join(profiles.flags(k))})"
        for k in needing[:NAMED]
    ]
    more = [f"{len(needing) - NAMED} more"] if len(needing) > NAMED else []
    return f"{'; '.join([*people, *more])}."


def forest_figure(profiles: AnnotatorProfiles) -> Figure:
    """Draw the accuracy of the FOREST annotators with most labels, with 95 % intervals, best on top.

    Colors show groups, crosses show who needs review.
    """
    report, main = profiles.people, profiles.communities.main
    most = np.argsort(-report.labels, kind="stable")[:FOREST]
    most = most[report.labels[most] > 0]
    order = most[np.argsort(report.accuracy[most], kind="stable")]
    low, high = report.interval
    several = len(profiles.communities) > 1
    data = []

    def tip(k: int) -> str:
        right, between = report.accuracy[k] * 100, f"{low[k] * 100:.0f} to {high[k] * 100:.0f} %"
        head = f"<b>{shown(report.names[k])}</b>: {report.labels[k]:,} labels, {right:.0f} % right ({between})"
        flags = [f"<b>{escape(flag)}</b>" for flag in profiles.flags(k)]
        confusions = [escape(str(confusion)) for confusion in profiles.confusions[k]]
        return "<br>".join([head, *flags, *confusions])

    for group in range(-1, len(profiles.communities)):
        rows = [(height, int(k)) for height, k in enumerate(order) if (main[k] if several else -1) == group]
        if not rows:
            continue
        rows.sort(key=lambda row: bool(profiles.flags(row[1])))  # circles first: the legend shows the first symbol
        heights, codes = map(list, zip(*rows, strict=True))
        colour = f"--c{group % plots.COLOURS}" if group >= 0 else ("--soft" if several else "--c0")
        data.append(
            scatter(
                numbers(report.accuracy[codes]),
                heights,
                "markers",
                colour,
                size=9,
                symbol=["x" if profiles.flags(k) else "circle" for k in codes],
                name=f"group {group + 1}" if group >= 0 else "too few labels for a group",
                error_x=plots.whiskers(report.accuracy[codes], low[codes], high[codes], colour),
                customdata=[tip(k) for k in codes],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    x = axis("accuracy (%), with its 95 % interval", range=[0, 1.005], **PERCENT)
    y = axis("annotator", [shown(report.names[k], 22) for k in order], range=[-0.8, len(order) - 0.2])
    return figure(data, 110 + 17 * len(order), x, y, showlegend=several)


def prototype_figure(prototype_jl: Floats, classes: Names, options: Names) -> Figure:
    """Draw how a group answers: for each true class (row), the share of each answer (column)."""
    j, width = prototype_jl.shape
    heat = plots.heatmap(
        [numbers(row) for row in prototype_jl],
        1,
        "true %{customdata[0]}: %{z:.1%} said %{customdata[1]}",
        xgap=1,
        ygap=1,
        texttemplate="%{z:.0%}" if max(j, width) <= 6 else "",
        customdata=[[[shown(true), shown(option)] for option in options] for true in classes],
    )

    def ticks(names: Names) -> Figure:
        codes = range(0, len(names), -(-len(names) // 25))
        return {"showgrid": False, "tickvals": list(codes), "ticktext": [shown(names[code], 16) for code in codes]}

    x, y = axis("answer", **ticks(options)), axis("true class", autorange="reversed", **ticks(classes))
    return figure([heat], min(420, 110 + max(18, min(44, 240 // j)) * j), x, y)


def similarity_figure(profiles: AnnotatorProfiles) -> Figure:
    """Draw the similarity of all pairs of the MAP annotators with most labels, with a frame around each group."""
    communities, report = profiles.communities, profiles.people
    rows = np.argsort(-report.labels[communities.learned], kind="stable")[:MAP]
    codes = communities.learned[rows]
    main = communities.main[codes]
    order = np.lexsort((-communities.membership[codes, main], main))
    rows, codes, main = rows[order], codes[order], main[order]
    similar = communities.similarity[np.ix_(rows, rows)]
    apart = similar[~np.eye(len(similar), dtype=bool)]  # exclude the diagonal from the scale: it is always 1
    most = max(0.1, float(apart.max(initial=0.0)))
    heat = plots.heatmap([numbers(row, 2) for row in similar], most, "similarity %{z:.2f}")
    if len(codes) <= 40:  # names of more pairs would make the page large
        names = [shown(report.names[k], 22) for k in codes]
        heat["customdata"] = [[f"{one} and {other}" for other in names] for one in names]
        heat["hovertemplate"] = "%{customdata}: " + heat["hovertemplate"]
    ends = np.flatnonzero(np.diff(main, append=-2)) + 1
    starts = np.concatenate(([0], ends[:-1]))
    frames = [
        {
            "type": "rect",
            **dict.fromkeys(("x0", "y0"), start - 0.5),
            **dict.fromkeys(("x1", "y1"), end - 0.5),
            "line": {"color": f"--c{main[start] % plots.COLOURS}", "width": 2},
        }
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    ticks = {"tickvals": ((starts + ends - 1) / 2).tolist(), "ticktext": [f"group {main[n] + 1}" for n in starts]}
    by_group = axis("annotators, by group", showgrid=False, **ticks)
    return figure([heat], 420, by_group, by_group | {"autorange": "reversed"}, shapes=frames)


def drift_figure(profiles: AnnotatorProfiles, changed: Sequence[int]) -> Figure:
    """Draw accuracy in time windows with 95 % bands, one line for each of the first LINES annotators in `changed`."""
    data: list[Figure] = []
    ends = []
    for rank, k in enumerate(changed[:LINES]):
        change, name, colour = profiles.changes[k], profiles.names[k], f"--c{rank % plots.COLOURS}"
        assert change is not None
        windows = change.windows
        x = [moment(middle) for middle in ((windows.start + windows.end) / 2).tolist()]
        if len(changed) <= 3:  # more bands would hide each other
            data += plots.band(x, windows.low, windows.high, colour)
        counts = zip(windows.labels, windows.low, windows.high, strict=True)
        data.append(
            scatter(
                x,
                numbers(windows.accuracy),
                "lines+markers",
                colour,
                size=6,
                name=shown(name),
                customdata=[[int(count), f"{low * 100:.0f} to {high * 100:.0f} %"] for count, low, high in counts],
                hovertemplate="%{fullData.name}: %{y:.0%} (%{customdata[1]}) of %{customdata[0]} labels<extra></extra>",
            )
        )
        ends.append((shown(name, 24), x[-1], float(windows.accuracy[-1])))
    accuracy = axis("accuracy (%)", range=[0, 1.02], **PERCENT)
    return figure(data, 340, axis("time of the labels"), accuracy, annotations=plots.end_names(ends, span=1.0))


def moment(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str | float:
    """Format seconds since the epoch as a time (UTC). Return a number that is out of range unchanged."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (OverflowError, OSError, ValueError):
        return seconds


def day(seconds: float) -> str:
    """Format seconds since the epoch as a day (UTC), or as a number if they are out of range."""
    text = moment(seconds, "%Y-%m-%d")
    return text if isinstance(text, str) else f"{text:g}"
