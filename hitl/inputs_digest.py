"""Digest of a run's inputs. If no input has changed, the last result is reused.

    revision    number of pages that changed stored data (`Store.revision`)
    combine     settings of the consensus; versions of hitl and of the consensus format
    settings    all settings, including those in the environment
    files       size and modification time of the files named in the settings: probabilities, features, graph, accepted
                labels, user code
    trainings   the last training of the model of `[learn]`, per question
    sent_back   items sent back to annotators
    people      annotators who can be asked, if the platform can list them
    questions   the questions and their classes
    until       time at which the plan changes although no input does, because a question expires

Reuse is safe because the same inputs give the same result: no fit starts from an earlier one, and a policy returns the
same plan for the same inputs (its contract tests check this).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl import __version__
from hitl.platform import Connector, Question
from hitl.project import combined, is_over, people_of
from hitl.store.results import BASIS

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.plan import Plan
    from hitl.platform import Progress
    from hitl.settings import Settings
    from hitl.store import Store


def digest_inputs(settings: Settings, store: Store, connector: Connector) -> dict[str, Any]:
    """Return digests of all inputs except the questions and `until`, as JSON values. Reads no items or answers."""
    people = sorted(row.name for row in people_of(connector) or ())
    return {
        **_digest_evidence(settings, store),
        "settings": _digest([settings.model_dump_json()]),
        "people": _digest(people),
        "sent_back": _digest(map(repr, store.sent_back(settings.name))),
    }


def _digest_evidence(settings: Settings, store: Store) -> dict[str, Any]:
    """Return digests of the inputs that the consensus depends on."""
    from hitl.consensus import FORMAT

    whole = dict.fromkeys(("combine", "models", "features", "graph", "learn"), True)
    used = settings.model_dump_json(include={**whole, "crew": {"judges"}, "serve": {"suggest", "blind_share"}})
    return {
        "revision": store.revision(settings.name),
        "combine": _digest([used, __version__, str(FORMAT)]),
        "files": _digest(_stamps(settings)),
        **_digest_trainings(settings, store),
    }


def _digest_trainings(settings: Settings, store: Store) -> dict[str, str]:
    return {"trainings": _digest(map(repr, sorted(store.trainings(settings.name).items())))}


def digest_questions(questions: Iterable[Question]) -> str:
    """Return a digest of the questions."""
    return _digest(map(repr, questions))


def as_metrics(
    there: Mapping[str, Any], settings: Settings, store: Store, questions: Iterable[Question], plan: Plan
) -> dict[str, Any]:
    """Return the inputs of a run as an entry of its metrics.

    `there`: output of `digest_inputs` before the run. Trainings are digested again, because the run may have trained.
    """
    asked, end = digest_questions(questions), until(plan, settings.crew.expire_hours * 3600.0)
    return {BASIS: {**there, **_digest_trainings(settings, store), "questions": asked, "until": end}}


def until(plan: Plan, expire: float) -> float | None:
    """Return when the plan changes although no input does (seconds since the epoch), or None if it does not.

    It changes `expire` seconds after the oldest question was put to an annotator by name, or after an annotator who is
    not away began to leave questions unanswered. Questions for anyone and sent-back items never expire.
    """
    waiting = [ask.since for ask in plan.asks if ask.annotator is not None and not ask.sent_back]
    owing = [person.unanswered for person in plan.people if person.unanswered and not person.away]
    first = min([*waiting, *owing], default=math.inf) + expire
    return first if math.isfinite(first) else None


def unchanged(
    recorded: Mapping[str, Any] | None, current: Mapping[str, Any], questions: str | None, now: float
) -> bool:
    """Return True if the inputs are those of the `recorded` run, and `now` is before its `until`.

    `recorded` is None if the run recorded no inputs: then return False. `questions` is the digest of the current
    questions, or None if they cannot have changed.
    """
    if recorded is None or any(recorded.get(name) != value for name, value in current.items()):
        return False
    if questions is not None and recorded.get("questions") != questions:
        return False
    return recorded.get("until") is None or now < float(recorded["until"])


def result_changed(settings: Settings, store: Store) -> bool:
    """Return True if an input of the last run's consensus has changed: stored data, settings, files or a training."""
    last = store.last_cycle(settings.name)
    recorded = None if last is None else last.basis
    return recorded is None or any(recorded.get(k) != value for k, value in _digest_evidence(settings, store).items())


def stored_results(
    settings: Settings, store: Store, evidence: Mapping[str, Evidence], progress: Progress
) -> tuple[Mapping[str, Consensus], bool]:
    """Return the consensus of each question, and True if the last run computed it.

    Refit all questions if `result_changed`, or if a stored consensus does not cover the `evidence`. A refit is not
    recorded.
    """
    latest = None if result_changed(settings, store) else store.latest(settings.name)
    if latest is None or not all(is_over(latest[0].get(name), known) for name, known in evidence.items()):
        return combined(settings, store, evidence, progress), False
    return latest[0], True


def _stamps(settings: Settings) -> Iterator[str]:
    named = [
        *settings.models.values(),
        settings.graph.file,
        settings.features.file,
        settings.features.weights,
        settings.budget.accept,
    ]
    methods = [own.method for own in (settings.combine, *settings.combine.questions.values())]
    names = (*methods, settings.features.model, settings.learn.model)
    code = [name.rpartition(":")[0] for name in names if name]
    modules = [f"{name.replace('.', '/')}.py" for name in code if name and not name.endswith(".py")]  # user modules
    for path in (Path(name) for name in (*named, *code, *modules) if name):
        with suppress(OSError):  # the fit that reads the file reports the error
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                if file.is_file():
                    yield f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}"


def _digest(parts: Iterable[str]) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]
