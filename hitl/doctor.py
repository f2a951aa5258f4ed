"""Whether a project can run: settings, store, combiner, platform and crew, each with how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hitl.active.assignment.missing_skills import in_words, lacking
from hitl.active.registry import policy
from hitl.exchange import Check
from hitl.models.registry import combiner
from hitl.project import annotator_names, crew_of, opened

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.store import Store


def checks(config: Path) -> Iterator[Check]:
    """The checks of the project of this hitl.toml, in order. Raises HitlError where none of the others can be made."""
    with opened(config) as (settings, store, connector):
        yield Check("settings", True, f"{config}: project {settings.name!r}")
        counts = store.counts(settings.name)
        yield Check("store", True, ", ".join(f"{value:,} {key}" for key, value in counts.items()))
        combiner(settings.combine.method, **settings.combine.options)
        yield Check("combiner", True, settings.combine.method)
        policy(settings.policy.name, **settings.policy.options)
        yield Check("policy", True, settings.policy.name)
        yield from connector.check()
        yield from _crew(settings, store)
        yield from _skills(settings, store)


def _crew(settings: Settings, store: Store) -> Iterator[Check]:
    """Whether the platform knows everyone who is to be asked; a folder of tables knows only those who answered."""
    known = annotator_names(store, settings.name).values()
    missing = sorted(set(settings.crew.annotators) - set(known))
    if missing and settings.source.kind != "tables":
        mend = "they sign up on the platform, then `hitl pull`; or mend crew.annotators"
        yield Check("crew", False, f"not seen yet: {', '.join(missing)}", mend)


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
