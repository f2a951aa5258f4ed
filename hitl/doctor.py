"""Whether a project can run: settings, store, combiner, platform and crew, each with how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hitl.active.assignment.missing_skills import in_words, lacking
from hitl.active.registry import policy
from hitl.errors import HitlError
from hitl.exchange import Check
from hitl.models.registry import combiner
from hitl.project import crew_of, opened, orders_of_others, reachable, stored_evidence
from hitl.status import stored_in_words

if TYPE_CHECKING:
    from hitl.exchange import Connector
    from hitl.settings import Settings
    from hitl.store import Store


def checks(config: Path) -> Iterator[Check]:
    """The checks of the project of this hitl.toml, in order. Raises HitlError where none of the others can be made."""
    with opened(config) as (settings, store, connector):
        yield Check("settings", True, f"{config}: project {settings.name!r}")
        counts = store.counts(settings.name)
        yield Check("store", True, stored_in_words(counts))
        combiner(settings.combine.method, **settings.combine.options)
        yield Check("combiner", True, settings.combine.method)
        policy(settings.policy.name, **settings.policy.options)
        yield Check("policy", True, settings.policy.name)
        yield from connector.check()
        yield from _crew(settings, store, connector)
        for line in orders_of_others(store, settings.name, connector):
            problem, _, mend = line.partition(": ")
            yield Check("other projects", False, problem, mend)
        yield _outbox(settings, store)
        yield from _skills(settings, store)
        yield from _models(settings, store, connector)


def _crew(settings: Settings, store: Store, connector: Connector) -> Iterator[Check]:
    """Whether the platform knows everyone who is to be asked; a folder of tables knows only those who answered."""
    if not settings.crew.annotators:
        return
    try:
        crew, unknown = reachable(crew_of(settings, store), connector)
    except HitlError as error:
        yield Check("crew", False, str(error), "mend crew.annotators, or let them sign up on the platform")
        return
    if unknown:
        yield Check("crew", False, "; ".join(unknown), "mend crew.annotators, or let them sign up on the platform")
    else:
        yield Check("crew", True, f"{len(crew.names):,} named")


def _outbox(settings: Settings, store: Store) -> Check:
    """Whether something waits to be sent, and why the last cycle failed."""
    pending, failure = store.pending(settings.name), store.failure(settings.name)
    waiting = ", ".join(dict.fromkeys(f"{each.kind} {each.key}".strip() for each in pending))
    if not pending:
        return Check("outbox", True, "nothing waits to be sent")
    why = f"; the last cycle failed: {failure.message}" if failure else ""
    mend = "`hitl run` plans again, drops what is no longer wanted, and sends the rest"
    return Check("outbox", not failure, f"{len(pending)} to be sent: {waiting}{why}", mend if failure else "")


def _models(settings: Settings, store: Store, connector: Connector) -> Iterator[Check]:
    """Whether the files of `[models]` can be read and fit the items that were pulled."""
    if not settings.models:
        return
    try:
        evidence = stored_evidence(settings, store, connector.questions())
    except HitlError as error:
        yield Check("models", False, str(error), "mend the file, or its name in [models]; `hitl pull` reads the items")
        return
    counts = {name: p for known in evidence.values() for name, p in known.probabilities.items()}
    sizes = ", ".join(f"{name} ({int((p == p).any(axis=1).sum()):,} items)" for name, p in counts.items())
    yield Check("models", True, sizes)


def _skills(settings: Settings, store: Store) -> Iterator[Check]:
    """Whether an annotator can do what each item needs; nothing where items need nothing, or none was pulled yet."""
    items = store.items(settings.name).column("item").to_pylist()
    if settings.crew.needs is None or not items:
        return
    crew = crew_of(settings, store)
    lacks = lacking(items, crew)
    if not crew.needs:
        mend = "name the field of the items' data that says which skills an item takes"
        yield Check("skills", False, f"no item has the field {settings.crew.needs!r} (crew.needs)", mend)
    elif lacks:
        yield Check("skills", False, in_words(lacks, crew), "mend crew.skills, or ask an annotator who has them")
    else:
        needing = f"{len(crew.needs):,} item{'' if len(crew.needs) == 1 else 's'}"
        yield Check("skills", True, f"needed by {needing}; the crew has them")
