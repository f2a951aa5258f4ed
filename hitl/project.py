"""A project: its hitl.toml, store and platform, for runs, commands and the service.

    load, stored, opened                 the settings; settings and store; settings, store and connector
    stored_evidence, combined            question -> evidence; question -> consensus, fitted now
    item_names                           platform's key -> the user's own id
    crew_of, budget_of                   who may be asked, and how much

Numerical libraries are imported by the first call that needs them, so `hitl --help` stays light.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, cast

from hitl.errors import BadInput, BadSettings, PlatformError, StoreError
from hitl.formatting import did_you_mean, expected_fields, masked
from hitl.platform import id_in

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.annotations import Annotations, Floats, Name, Names
    from hitl.consensus import Consensus
    from hitl.crew import Budget, Crew
    from hitl.evidence import Evidence
    from hitl.learning.graph import ProjectGraph
    from hitl.platform import AnnotatorRow, Connector, Progress, Question
    from hitl.settings import Settings
    from hitl.store import Store


one_fit = RLock()
"""Lock held during a fit, because numba without OpenMP or TBB may crash if two threads run compiled code at once."""


def load(config: Path) -> Settings:
    """Load the settings of this hitl.toml, with paths resolved against its folder. Raises BadSettings."""
    from hitl.connectors.catalog import settings_of
    from hitl.settings import loading

    # The folder is absolute, because digests of results depend on these paths.
    return loading.load(config, settings_of).within(config.resolve().parent)


@contextmanager
def stored(config: Path) -> Iterator[tuple[Settings, Store]]:
    """Open settings and store, without the platform and its token."""
    from hitl.store import Store
    from hitl.tables.limits import within

    loaded = load(config)
    with within(loaded.limits.limits()), Store(store_url(loaded.store, config.parent)) as store:
        yield loaded, store


@contextmanager
def opened(config: Path, *, full: bool = False) -> Iterator[tuple[Settings, Store, Connector]]:
    """Open the project's settings, store and connector.

    Raises BadSettings if the store has this place under another name, or a project of this name from another place. The
    latter is allowed for a `full` pull.
    """
    from hitl.connectors.catalog import connector_of
    from hitl.store import Store
    from hitl.tables.limits import within

    loaded = load(config)
    connector = connector_of(loaded.source, config.parent)
    with within(loaded.limits.limits()), Store(store_url(loaded.store, config.parent)) as store:
        require_one_name(store, loaded.name, connector)
        if not full:
            require_place(store, loaded.name, connector)
        yield loaded, store, recalled(connector, store, loaded.name)


def recalled(connector: Connector, store: Store, project: str) -> Connector:
    """Return the connector after `Connector.recall`, which is skipped if the last pull was from another place."""
    place = store.source(project)
    if place is None or connector.is_at(place):
        connector.recall(store.cursor(project))
    return connector


def store_url(url: str, folder: Path) -> str:
    """Resolve a relative SQLite file against the folder of hitl.toml, and create the file's folder.

    The folder of an absolute path is not created, because a mistyped path must not become an empty project. Raises
    BadSettings if the address is malformed.
    """
    from hitl.store.database import parse

    try:
        parse(url)
    except StoreError as error:
        raise BadSettings(f"store (or HITL_STORE) is {masked(url)!r}: {error}") from None
    if not url.startswith(prefix := "sqlite:///"):
        return url
    file = folder / url[len(prefix) :]
    if not Path(url[len(prefix) :]).is_absolute():
        file.parent.mkdir(parents=True, exist_ok=True)
    return f"{prefix}{file.resolve()}"


def require_place(store: Store, project: str, connector: Connector) -> None:
    """Raise BadSettings if the stored project of this name was pulled from another place."""
    place = store.source(project)
    if place is None or connector.is_at(place):
        return
    raise BadSettings(
        f"name: the store has a project {project!r} that was pulled from {place}, and this hitl.toml is for "
        f"{connector.place}; give one of the two another name. If it is the same project at a new address: "
        "`hitl pull --full`"
    )


def require_one_name(store: Store, project: str, connector: Connector) -> None:
    """Raise BadSettings if the store has this place under another name."""
    for other, held in store.sources().items():
        if other != project and held == connector.place:
            raise BadSettings(
                f"name: the store has {held} under the name {other!r} already, and two projects there would overwrite "
                "each other's order; use that name. One hitl.toml plans all controls of a project together"
            )


def orders_of_others(store: Store, project: str, connector: Connector) -> tuple[str, ...]:
    """Return a warning if the platform has an order from another store and can report it (`Connector.marks`)."""
    if connector.marks() <= {store.mark(project)}:
        return ()
    return (
        "Another hitl store also orders the tasks of this project, and the two overwrite each other's order and tabs. "
        "Keep one hitl.toml and one store per project. If the other store is gone, the next push replaces its order.",
    )


def stored_questions(settings: Settings, store: Store) -> tuple[Question, ...]:
    """Return the questions as of the last pull. Raises BadInput before the first."""
    questions = store.questions(settings.name)
    if questions is None:
        raise BadInput(
            f"project {settings.name!r}: no items stored; run `hitl pull` first, which only reads, or `hitl run`"
        )
    return questions


# -- evidence and results ----------------------------------------------------------------------------------


def stored_evidence(settings: Settings, store: Store, questions: tuple[Question, ...]) -> dict[str, Evidence]:
    """Return question -> evidence, with the last predictions of `[learn]`. All cover the same items.

    Raises BadInput if no items are stored, or if a file of `[models]` or `[graph]` cannot be used.
    """
    from hitl.learning.training import with_predictions

    given = given_evidence(settings, store, questions)
    return {name: with_predictions(settings, store, name, evidence) for name, evidence in given.items()}


def given_evidence(settings: Settings, store: Store, questions: tuple[Question, ...]) -> dict[str, Evidence]:
    """Return question -> evidence without `[learn]`: annotations, ground truth, other models, features and graph."""
    from hitl.annotations import CheckedNames
    from hitl.kinds.kind import StoredAnswers, kind_of, with_hidden
    from hitl.learning.features import stored_features

    project, names = settings.name, store.annotator_names(settings.name)
    settings.combine.require_known_questions(question.name for question in questions)
    whole = next((question for question in questions if not kind_of(question).of_parts), None)
    first = None if whole is None else store.labels(project, whole, names)
    items = CheckedNames.unchecked(store.key_column(project)) if first is None else cast("CheckedNames", first.items)
    if not items:
        raise store.no_items(project)
    files = _model_files(settings, store, questions)
    features = stored_features(settings, store, cast("tuple[str, ...]", items))
    linked = graph_of(settings, store, items, features)

    def stored_answers(question: Question) -> StoredAnswers:
        def labels() -> Annotations:
            return first if first is not None and question == whole else store.labels(project, question, names, items)

        return StoredAnswers(
            question,
            names,
            partial(store.items, project),
            partial(store.annotations, project, question.name),
            partial(store.gold, project, question.name),
            labels,
            lambda: {**store.predictions(project, question.name), **files[question.name]},
        )

    given: dict[str, Evidence] = {}
    for question in questions:
        given |= kind_of(question).evidence(stored_answers(question))
    judges, graph = settings.crew.judges, None if linked is None else linked.adjacency
    given = with_hidden(given, questions)
    return {name: replace(one.with_judges(judges), features=features, graph=graph) for name, one in given.items()}


def graph_of(settings: Settings, store: Store, items: Names, features: Floats | None) -> ProjectGraph | None:
    """Return the links of `[graph]` between these items; None without `[graph]`, or without the features it needs.

    Raises BadInput if its file cannot be used.
    """
    from hitl.learning.graph import graph_of_features, graph_of_file

    chosen = settings.graph
    if chosen.file is not None:
        names = item_names(settings, store)
        return graph_of_file(chosen.file, chosen.item, [names[str(key)] for key in items])
    if chosen.neighbours is None or features is None:
        return None
    return graph_of_features(features, chosen.neighbours)


def _model_files(settings: Settings, store: Store, questions: tuple[Question, ...]) -> dict[str, dict[str, pa.Table]]:
    """Return question -> model -> table of probabilities, from the files of `[models]`, with the platform's keys."""
    from hitl.tables.align import by_question

    files: dict[str, dict[str, pa.Table]] = {question.name: {} for question in questions}
    key_of = {own: key for key, own in item_names(settings, store).items()} if settings.models else {}
    for model, path in settings.models.items():
        for question, table in by_question(path, key_of, {one.name: one.classes for one in questions}).items():
            files[question][model] = table
    return files


def usable(settings: Settings, store: Store, questions: tuple[Question, ...]) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings without unusable files of models and (unless required) graph, and a warning about each."""
    from hitl.models.combiner import needs_of
    from hitl.models.registry import chosen

    told, models = [], {}
    for name, path in settings.models.items():
        alone = settings.model_copy(update={"models": {name: path}, "graph": type(settings.graph)()})
        try:
            given_evidence(alone, store, questions)  # also checks the numbers in the file
            models[name] = path
        except BadInput as error:
            told.append(f"models.{name} is left out: {error}. Fix the file, or take it out of [models]")
    graph, methods = settings.graph, [chosen(*settings.combine.of(question.name).arguments) for question in questions]
    if graph.file is not None and not any("graph" in needs_of(method) for method in methods):
        try:
            graph_of(settings, store, tuple(store.items(settings.name).column("item").to_pylist()), None)
        except BadInput as error:
            graph = type(graph)()
            told.append(f"the graph is left out: {error}. Fix the file, or take [graph] out")
    return settings.model_copy(update={"models": models, "graph": graph}), tuple(told)


def combined(
    settings: Settings, store: Store, evidence: Mapping[str, Evidence], progress: Progress
) -> dict[str, Consensus]:
    """Fit the configured combiner to each question, without copied suggestions. Return question name -> consensus."""
    from hitl.kinds.kind import kind_of
    from hitl.learning.suggestions import without_copies
    from hitl.models.registry import chosen

    results: dict[str, Consensus] = {}
    for name, known in without_copies(settings, store, evidence).items():
        own = settings.combine.of(name if known.parts is None else known.parts.question.name)
        with one_fit:
            found = kind_of(known).consensus(known, chosen(*own.arguments))
        labels_k = evidence[name].annotations.labels_per_annotator  # with the copies: `is_over` compares them
        results[name] = replace(found, annotators=replace(found.annotators, labels=labels_k))
        progress("combine", len(results), len(evidence))
    return results


def is_over(consensus: Consensus | None, evidence: Evidence) -> bool:
    """Return True if the consensus has the items, annotators, options and numbers of labels of the evidence."""
    annotations = evidence.annotations
    return consensus is not None and (
        consensus.items == annotations.items
        and consensus.annotators.names == annotations.annotators
        and consensus.annotators.options == annotations.options
        and bool((consensus.annotators.labels == annotations.labels_per_annotator).all())
    )


# -- names of items ----------------------------------------------------------------------------------------


def item_names(settings: Settings, store: Store) -> dict[str, str]:
    """Return platform's key -> the user's own id for every stored item, in the order of `Store.items`.

    The user's own id is in the field `source.key` of the item's data, or was given to `hitl add`. An item without one
    is named by its platform's key, or "task <key>" if another item has this key as its own id.

    Raises BadSettings if no item has the field, BadInput if two items have the same own id.
    """
    from hitl.settings import Keyed

    table = store.items(settings.name)
    keys, refs = table.column("item").to_pylist(), table.column("ref").to_pylist()
    field = settings.source.key if isinstance(settings.source, Keyed) else None
    from_data: list[str | None] = [None] * len(keys)
    if field is not None:
        data = [json.loads(text) for text in table.column("data").to_pylist()]
        from_data = [id_in(one, field) for one in data]
        if keys and not any(from_data):
            raise BadSettings(f"source.key: no item has an id in the field {field!r}; {expected_fields(field, data)}")
    own = {key: name or ref or None for key, name, ref in zip(keys, from_data, refs, strict=True)}
    first: dict[str, str] = {}
    for key, name in own.items():
        if name is not None and first.setdefault(name, key) != key:
            where = f"the field {field!r} (source.key)" if field else "their meta"
            raise BadInput(
                f"tasks {first[name]} and {key} have one own id, {name!r}, in {where}; expected an id of its own for "
                "each: fix or delete one of them on the platform, then `hitl pull`"
            )
    return {key: name or (f"task {key}" if key in first else key) for key, name in own.items()}


# -- crew and budget ---------------------------------------------------------------------------------------


def crew_of(settings: Settings, store: Store) -> Crew:
    """Build the crew from the settings. Annotators are not asked again about items they skipped."""
    from hitl.crew import Crew, skills_needed

    crew, names, skips = settings.crew, store.annotator_names(settings.name), store.skips(settings.name)
    for name in crew.annotators:
        if called := [shown for key, shown in names.items() if shown == f"{name} ({key})"]:
            expected = " or ".join(called)
            raise BadSettings(f"crew.annotators: several annotators are called {name!r}; expected {expected}")
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
        needs={} if crew.skill_field is None else skills_needed(store.items(settings.name), crew.skill_field),
    )


def people_of(connector: Connector) -> tuple[AnnotatorRow, ...] | None:
    """Return everyone who can be asked, or None if the platform cannot list them or does not answer."""
    try:
        return connector.annotators()
    except PlatformError:
        return None


def reachable(crew: Crew, connector: Connector, names: Mapping[str, str]) -> tuple[Crew, tuple[str, ...]]:
    """Return the crew without annotators unknown to the platform, and a warning about each.

    `names`: key -> name of stored annotators (`Store.annotator_names`), used if the platform does not answer. If the
    platform cannot list its users, the crew is unchanged. Raises BadSettings if nobody in the crew is known, because a
    crew without names would mean anyone.
    """
    if not crew.names:
        return crew, ()
    try:
        people = connector.annotators()
    except PlatformError:
        there = set(names.values())
    else:
        if people is None:
            return crew, ()
        there = {name for row in people for name in (row.name, f"{row.name} ({row.key})")}
    members = tuple(name for name in crew.names if name in there)
    warnings = []
    for name in (one for one in crew.names if one not in there):
        meant = did_you_mean(str(name), sorted(there.difference(members))) or "."
        warnings.append(
            f"crew.annotators: the platform has no user {str(name)!r}, who is not asked{meant} Fix the name, let them "
            "sign up there, or take them out"
        )
    if not members:
        raise BadSettings("; ".join(warnings))
    return replace(crew, names=members), tuple(warnings)


def budget_of(settings: Settings) -> Budget:
    """Build the budget from the settings."""
    from hitl.crew import Budget
    from hitl.tables.read import read_labels

    accepted = read_labels(Path(settings.budget.accept)) if settings.budget.accept else {}
    return Budget(**settings.budget.model_dump(exclude={"accept"}), accepted=accepted)


def lease_seconds(connector: Connector) -> float:
    """Return the duration of a lease in seconds, no shorter than any request of the connector."""
    from hitl.store.lease import SECONDS

    return max(SECONDS, connector.lease_seconds)
