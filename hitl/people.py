"""Who can be asked: the crew of the settings, and whom of them the platform knows.

crew_of      the crew of hitl.toml, and who skipped what
reachable    the same without those whom the platform does not know
doubts       what hitl.toml says of annotators that has no effect
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from hitl.errors import BadSettings, PlatformError
from hitl.exchange import Directory

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.annotations import Name
    from hitl.crew import Crew
    from hitl.exchange import AnnotatorRow, Connector
    from hitl.settings import CrewSettings, Settings
    from hitl.store import Store


def annotator_names(store: Store, project: str) -> dict[str, str]:
    """Platform key -> shown name; the key is added where several annotators share a name."""
    table = store.annotators(project)
    names = dict(zip(table.column("key").to_pylist(), table.column("name").to_pylist(), strict=True))
    count = Counter(names.values())
    return {key: name if count[name] == 1 else f"{name} ({key})" for key, name in names.items()}


def crew_of(settings: Settings, store: Store) -> Crew:
    """The crew of the settings; an annotator who skipped an item is not asked about it again."""
    from hitl.crew import Crew

    crew = settings.crew
    names = annotator_names(store, settings.name)
    skips = store.skips(settings.name)
    _refuse_shared_names(crew.annotators, names)
    pairs = zip(skips.column("annotator").to_pylist(), skips.column("item").to_pylist(), strict=True)
    never = frozenset((names.get(annotator, annotator), item) for annotator, item in pairs)
    return Crew(
        tuple(crew.annotators),
        cast("Mapping[Name, int]", crew.capacities),
        crew.capacity,
        never,
        cost=cast("Mapping[Name, float]", crew.costs),
        default_cost=crew.cost,
        skills={name: frozenset(skills) for name, skills in crew.skills.items()},
        needs={} if crew.needs is None else needs_of(store.items(settings.name), crew.needs),
    )


def people_of(connector: Connector) -> tuple[AnnotatorRow, ...] | None:
    """Everyone who can be asked; None where the platform does not tell."""
    if not isinstance(connector, Directory):
        return None
    try:
        return connector.annotators()
    except PlatformError:
        return None


def reachable(crew: Crew, connector: Connector, names: Mapping[str, str]) -> tuple[Crew, tuple[str, ...]]:
    """The crew without those whom the platform does not know, and a line about each of them.

    `names` are those of the last pull (`annotator_names`), for a platform that does not tell just now. Raises
    BadSettings where it knows none: a crew without names would be anyone.
    """
    if not (crew.names and isinstance(connector, Directory)):
        return crew, ()
    people = people_of(connector)
    there = set(names.values())
    if people is not None:
        there = {name for row in people for name in (row.name, f"{row.name} ({row.key})")}
    known = tuple(name for name in crew.names if name in there)
    told = tuple(_unknown(str(name), there - set(known)) for name in crew.names if name not in there)
    if not known:
        raise BadSettings("; ".join(told))
    return replace(crew, names=known), told


def doubts(settings: Settings, store: Store, crew: Crew) -> tuple[str, ...]:
    """A line for each thing that the settings say and that has no effect; `crew` is what became of them."""
    known = {*settings.crew.annotators, *annotator_names(store, settings.name).values()}
    return (*_without_names(settings.crew, known), *_without_needs(settings, store, crew))


def _without_needs(settings: Settings, store: Store, crew: Crew) -> Iterator[str]:
    """Needs in a field that no item has."""
    needs = settings.crew.needs
    if needs is not None and not crew.needs and store.items(settings.name).num_rows:
        yield (
            f"crew.needs: no item has the field {needs!r}, so that anybody is asked about anything. Name the field of "
            "the items' data that says which skills an item takes"
        )


def _without_names(settings: CrewSettings, known: Collection[str]) -> Iterator[str]:
    """What is said of nobody; of those who have left it may be."""
    if not settings.annotators:
        said = [key for key in ("capacity", "capacities", "skills", "needs") if key in settings.model_fields_set]
        if said:
            yield (
                f"crew.{', crew.'.join(said)} without crew.annotators: nobody is asked by name, and it has no effect. "
                "Name those who can be asked, or take it out"
            )
        return
    for key in ("capacities", "costs", "skills"):
        for name in getattr(settings, key):
            if name not in known:
                near = get_close_matches(name, list(known), 1)
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                yield f"crew.{key}: {name!r} is not in crew.annotators, and it has no effect. Mend the name{meant}"


def _unknown(name: str, there: Iterable[str]) -> str:
    near = get_close_matches(name, list(there), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return (
        f"crew.annotators: the platform has no user {name!r}, who is not asked. Mend the name{meant}, let them sign up "
        "there, or take them out"
    )


def needs_of(items: pa.Table, field: str) -> dict[Name, frozenset[str]]:
    """Item -> the skills that this field of its data names: one value or a list; items without it need none."""
    needs: dict[Name, frozenset[str]] = {}
    for key, data in zip(items.column("item").to_pylist(), items.column("data").to_pylist(), strict=True):
        value: Any = json.loads(data).get(field)
        values = value if isinstance(value, list) else [value]
        wanted = frozenset(str(one) for one in values if one not in (None, ""))
        if wanted:
            needs[key] = wanted
    return needs


def _refuse_shared_names(crew: tuple[str, ...], names: Mapping[str, str]) -> None:
    """Raise BadSettings for a name that several annotators share: they are told apart as "name (key)"."""
    for name in crew:
        called = [shown for key, shown in names.items() if shown == f"{name} ({key})"]
        if called:
            raise BadSettings(
                f"crew.annotators: several annotators are called {name!r}; expected {' or '.join(called)}"
            )
