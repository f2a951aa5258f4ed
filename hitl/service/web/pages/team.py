"""Show the team: what to train, who answers alike, whose accuracy changes. As in reports, with links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import Query, Request
from fastapi.responses import Response

from hitl.report.annotators import AnnotatorsSection, annotators_section
from hitl.service.web.callers import Shown, Viewer, question_of
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.snapshot import QuestionView

router = pages("annotators")

COLUMNS = ("true", "said", "labels", "items", "share", "often", "annotators", "names")

CONFUSIONS = 15
"""Maximum confusions of the team that are shown."""

NAMES = 5
"""Maximum annotators named per confusion: those who make it most often."""


@dataclass(frozen=True, eq=False)
class Team:
    """Results about the annotators of one question.

    Attributes:
        section: groups, change over time, flagged annotators; None if the consensus is about other annotators.
        training: the most frequent confusions of the whole team, JSON values.
    """

    section: AnnotatorsSection | None
    training: tuple[dict[str, Any], ...]


@router.get("/projects/{project}/team", summary="The team", responses=FORMS | responses(401, 404, 422, 503))
def team(
    project: str,
    request: Request,
    caller: Viewer,
    snapshot: Shown,
    question: Annotated[str | None, Query(description="One of the project's questions; else the first")] = None,
) -> Response:
    """Which confusions to train, whom to look into, who decides alike, and whose accuracy changes."""
    name, view = question_of(snapshot, question)
    study = request.app.state.studies.of("team", project, view, team_of)
    found: Team = study.found or Team(None, ())
    facts = {"question": name, "labels": study.labels, "busy": study.busy, **_facts(found.section)}
    crowd = found.section
    shown = {
        "questions": list(snapshot.views),
        "now": len(view.evidence.annotations),
        "trouble": study.trouble,
        "q": {"crowd": crowd, "id": "team"},
        "n_annotators": view.n_labeling,
    }
    figures = {} if crowd is None else {f"team-{part}": drawn for part, drawn in crowd.figures.items()}
    return answer(
        request, Page("team.html.j2", "Team", found.training, COLUMNS, facts, shown, figures), caller, project
    )


def team_of(view: QuestionView) -> Team:
    """Compute everything the page shows for a question."""
    return Team(annotators_section(view.page), tuple(training(view)))


def training(view: QuestionView) -> list[dict[str, Any]]:
    """Return the team's most frequent wrong answers, with the consensus as truth: one row each, most labels first.

    `share` is relative to all wrong answers, `often` to the answers to items of that class.
    """
    annotations, consensus = view.evidence.annotations, view.consensus
    true, said = consensus.labels[annotations.item], annotations.label
    shape = len(consensus.classes), len(annotations.options)
    counts_jl = np.bincount(true * shape[1] + said, minlength=shape[0] * shape[1]).reshape(shape)
    wrong_jl = counts_jl.copy()
    wrong_jl[np.arange(shape[0]), np.arange(shape[0])] = 0
    rows = []
    for cell in np.argsort(-wrong_jl, axis=None, kind="stable")[:CONFUSIONS]:
        j, answered = divmod(int(cell), shape[1])
        if not wrong_jl[j, answered]:
            break
        given = (true == j) & (said == answered)
        who = np.bincount(annotations.annotator[given], minlength=annotations.n_annotators)
        most = np.argsort(-who, kind="stable")[:NAMES]
        rows.append(
            {
                "true": str(consensus.classes[j]),
                "said": str(annotations.options[answered]),
                "labels": int(wrong_jl[j, answered]),
                "items": int(np.unique(annotations.item[given]).size),
                "share": float(wrong_jl[j, answered] / wrong_jl.sum()),
                "often": float(wrong_jl[j, answered] / counts_jl[j].sum()),
                "annotators": int((who > 0).sum()),
                "names": [str(annotations.annotators[k]) for k in most if who[k]],
            }
        )
    return rows


def _facts(section: AnnotatorsSection | None) -> dict[str, Any]:
    """Return the groups and the flagged annotators, for programs."""
    if section is None:
        return {"look_into": [], "groups": [], "changed": []}
    found = section.profiles
    changes = [(found.names[k], found.changes[k]) for k in section.changed]
    return {
        "look_into": [{"annotator": str(found.names[k]), "why": found.flags(k)} for k in section.flagged],
        "groups": [
            {"annotators": kind.size, "accuracy": kind.accuracy, "bits": kind.bits, "answers": kind.words}
            for kind, _ in section.groups
        ],
        "changed": [
            {"annotator": str(name), "at": one.when, "before": one.before, "after": one.after, "p": one.p_any_look}
            for name, one in changes
            if one is not None
        ],
    }
