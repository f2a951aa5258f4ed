"""Digest of a run's inputs. If no input has changed, the last result is reused.

    revision    number of pulls that changed stored data; `Store.revision`
    settings    hitl.toml, the environment, and the versions of hitl and of the saved consensus
    files       size and time of the files named in settings: probabilities, features, a graph, user code
    trainings   the last trainings on the labels
    sent_back   items sent back to annotators
    people      annotators who can be asked, if the platform knows them all
    questions   the questions and their classes
    until       time at which the plan changes by itself because a question expires

A policy returns the same plan for the same inputs (its contract tests check this), and combiners start cold.
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
    """Return digests of all inputs except the questions and `until`, as JSON values, without reading rows."""
    from hitl.consensus import FORMAT

    people = sorted(row.name for row in people_of(connector) or ())
    return {
        "revision": store.revision(settings.name),
        "settings": _digest([settings.model_dump_json(), __version__, str(FORMAT)]),
        "files": _digest(_stamps(settings)),
        "people": _digest(people),
        "sent_back": _digest(map(repr, store.sent_back(settings.name))),
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
    """Return the metrics entry of a run with the inputs `there` (`digest_inputs`) and this plan."""
    asked, end = digest_questions(questions), until(plan, settings.crew.expire_hours * 3600.0)
    return {BASIS: {**there, **_digest_trainings(settings, store), "questions": asked, "until": end}}


def until(plan: Plan, expire: float) -> float | None:
    """Return the time, since the epoch, at which the first question to an annotator expires; None: never."""
    waiting = [ask.since for ask in plan.asks if ask.annotator is not None and not ask.sent_back]  # sent-back ones stay
    owing = [person.unanswered for person in plan.people if person.unanswered and not person.away]
    first = min([*waiting, *owing], default=math.inf) + expire
    return first if math.isfinite(first) else None


def unchanged(
    recorded: Mapping[str, Any] | None, current: Mapping[str, Any], questions: str | None, now: float
) -> bool:
    """Return True if no input of the `recorded` run has changed. `questions` None: they cannot have changed."""
    if recorded is None or any(recorded.get(name) != value for name, value in current.items()):
        return False
    if questions is not None and recorded.get("questions") != questions:
        return False
    return recorded.get("until") is None or now < float(recorded["until"])


def stored_results(
    settings: Settings, store: Store, evidence: Mapping[str, Evidence], progress: Progress
) -> tuple[Mapping[str, Consensus], bool]:
    """Return the consensus of each question, and True if it is that of the last run.

    It is refitted if an answer, an item or a probability file has changed since. Nothing is recorded.
    """
    latest, last = store.latest(settings.name), store.last_cycle(settings.name)
    recorded = (None if last is None else last.basis) or {}
    current = {"revision": store.revision(settings.name), "files": _digest(_stamps(settings))}
    current |= _digest_trainings(settings, store)
    if latest is None or any(recorded.get(name) != value for name, value in current.items()):
        return combined(settings, evidence, progress), False
    if not all(is_over(latest[0].get(name), known) for name, known in evidence.items()):
        return combined(settings, evidence, progress), False
    return latest[0], True


def _stamps(settings: Settings) -> Iterator[str]:
    named = [*settings.models.values(), settings.graph.file, settings.features.file, settings.features.weights]
    code = [name.rpartition(":")[0] for name in (settings.features.model, settings.learn.model) if name]
    modules = [f"{name.replace('.', '/')}.py" for name in code if name and not name.endswith(".py")]  # user modules
    for path in (Path(name) for name in (*named, *code, *modules) if name):
        with suppress(OSError):  # the fit that reads it reports the error
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:  # a folder holds several files
                if file.is_file():
                    yield f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}"


def _digest(parts: Iterable[str]) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]
