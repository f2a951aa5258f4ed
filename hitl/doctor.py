"""Check everything a project needs to run: settings, store, combiner, platform, crew, files and addresses.

Each failed check says how to fix it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hitl.active.pending.blockers import missing_in_words, missing_skills
from hitl.active.registry import policy
from hitl.errors import HitlError
from hitl.events.sender import addresses_of
from hitl.formatting import counted, did_you_mean, percent
from hitl.learning.features import file_source, stored_features
from hitl.models.analysis.explanations import GOLD_ITEMS, explanations
from hitl.models.combiner import needs_of
from hitl.models.registry import chosen
from hitl.platform import Check, Connector, silent
from hitl.project import (
    combined,
    crew_of,
    graph_of,
    item_names,
    opened,
    orders_of_others,
    people_of,
    reachable,
    stored_evidence,
)
from hitl.settings import Settings
from hitl.status import stored_in_words
from hitl.store import Store
from hitl.store.events import Counted

LEAST_FREE = 200_000_000
"""Free bytes on the disk of a SQLite store below which `hitl doctor` warns."""


def checks(config: Path) -> Iterator[Check]:
    """Run the checks of a project in order. Raises HitlError if a failure makes further checks impossible."""
    with opened(config) as (settings, store, connector):
        yield Check("settings", True, f"{config}: project {settings.name!r}")
        store.database.require_sound()
        counts = store.counts(settings.name)
        yield Check("store", True, stored_in_words(counts))
        free = store.database.free_bytes()
        if free is not None and free < LEAST_FREE:
            fix = "free space, or move the store, before `hitl run` has to stop"
            yield Check(
                "disk",
                True,
                f"only {free // 10**6:,} MB are free on the disk of {store.database.name}",
                fix,
                warns=True,
            )
        for name, own in {"": settings.combine, **settings.combine.questions}.items():
            chosen(*own.arguments)
            as_printed = ", with the settings of its paper" if own.paper else ""
            yield Check("combiner", True, f"{name and f'{name}: '}{own.method}{as_printed}")
        policy(settings.policy.name, **settings.policy.options)
        if settings.policy.options.get("audit_share") and not settings.crew.annotators:
            fix = "name them in crew.annotators, or remove the key"
            yield Check("policy", False, "policy.options.audit_share asks nothing of annotators without names", fix)
        else:
            yield Check("policy", True, settings.policy.name)
        for check in connector.check():
            yield check
            if check.stops:
                return
        reported, suggested = store.suggested(settings.name)
        if reported:  # the platform reports which answers began as a suggestion
            detail = f"{suggested:,} of {reported:,} began as a suggestion that the annotator saw"
            if suggested:
                detail += f"; {percent(settings.serve.blind_share, 0)} of the items get none (serve.blind_share)"
            yield Check("answers", True, detail)
        for note in store.notes(settings.name):
            fix = note.fix or "fix or delete them on the platform; until then they count as skips"
            yield Check("annotations", not note.is_skip, f"{note.where}: {note.why}", fix if note.is_skip else "")
        yield from _crew(settings, store, connector)
        for line in orders_of_others(store, settings.name, connector):
            problem, _, fix = line.partition(". ")
            yield Check("other projects", False, problem, fix)
        yield _outbox(settings, store)
        yield from _skills(settings, store)
        yield from _explanations(settings, store)
        yield from _models(settings, store, connector)
        yield from _features(settings, store)
        yield from _graph(settings, store)
        yield from _learning(settings, store, connector)
        yield from _events(settings, store)


def _events(settings: Settings, store: Store) -> Iterator[Check]:
    """Check that each address of `[[events]]` can be reached, and count undelivered events. No event is sent."""
    counts = store.count_deliveries(settings.name)
    for one in addresses_of(settings, store):
        name, counted_now = f"events: {one.to.name}", counts.get(one.to.name, Counted())
        if one.to.lacks is not None:
            detail, _, fix = one.to.lacks.partition("; ")
            yield Check(name, False, detail, fix)
            continue
        reply = one.reach()
        waiting = f"; {counted(counted_now.waiting, 'event')} to be sent, {counted_now.failed:,} given up so far"
        if reply.status is None:
            fix = "fix its url, or see whether it runs; what waits is sent when it answers"
            yield Check(name, False, f"{one.to.shown}: {reply.said}{waiting}", fix)
        elif store.is_off(settings.name, one.to.name, one.digest):
            yield Check(name, False, f"{one.to.shown}: it has answered 410 (gone)", "`hitl events --test` turns it on")
        else:
            yield Check(name, True, f"{one.to.shown} answers{waiting}; `hitl events --test` sends a ping")


def _crew(settings: Settings, store: Store, connector: Connector) -> Iterator[Check]:
    """Check that the platform knows everyone who is asked, if it can list its users (a folder of tables cannot)."""
    try:
        if not settings.crew.annotators:
            return
        crew, unknown = reachable(crew_of(settings, store), connector, store.annotator_names(settings.name))
    except HitlError as error:
        yield Check("crew", False, str(error), "fix crew.annotators, or let them sign up on the platform")
        return
    if unknown:
        yield Check("crew", False, "; ".join(unknown), "fix crew.annotators, or let them sign up on the platform")
    else:
        known = {*store.annotator_names(settings.name).values()} if people_of(connector) is None else set()
        rest = sorted(known.difference(map(str, crew.names)))
        new = [
            f"; no answer yet by {name!r}{did_you_mean(str(name), rest)}"
            for name in crew.names
            if known and name not in known
        ]
        yield Check("crew", True, f"{len(crew.names):,} named" + "".join(new[:5]))


def _outbox(settings: Settings, store: Store) -> Check:
    """Count the operations to be sent. The check fails if there are any and the last run failed."""
    pending, failure = store.pending(settings.name), store.failure(settings.name)
    waiting = ", ".join(dict.fromkeys(each.subject for each in pending))
    if not pending:
        return Check("outbox", True, "nothing waits to be sent")
    why = "; the last run failed (`hitl status`)" if failure else ""
    fix = "`hitl run` plans again, drops what is no longer wanted, and sends the rest"
    return Check("outbox", not failure, f"{len(pending)} to be sent: {waiting}{why}", fix if failure else "")


def _explanations(settings: Settings, store: Store) -> Iterator[Check]:
    """Warn about questions whose labels have two explanations that only ground truth can tell apart."""
    results, _ = store.latest(settings.name) or ({}, None)
    for name, consensus in results.items():
        if ambiguity := explanations(consensus):
            fix = f"`hitl gold FILE` with the right answers to {GOLD_ITEMS} items drawn at random"
            yield Check(f"labels of {name}", True, ambiguity, fix, warns=True)


def _models(settings: Settings, store: Store, connector: Connector) -> Iterator[Check]:
    """Check that the files of `[models]` can be read and fit the pulled items."""
    if not settings.models or not len(store.key_column(settings.name)):
        return
    try:
        evidence = stored_evidence(settings, store, connector.questions())
    except HitlError as error:
        yield Check("models", False, str(error), "fix the file, or its name in [models]; `hitl pull` reads the items")
        return
    yield Check(
        "models",
        True,
        ", ".join(
            f"{name} predicts {question} of {int((p == p).any(axis=1).sum()):,} items"
            for question, known in evidence.items()
            for name, p in known.probabilities.items()
        ),
    )


def _learning(settings: Settings, store: Store, connector: Connector) -> Iterator[Check]:
    """Check the model of `[learn]`. If none is set, recommend one if it could learn from the features."""
    from hitl.models.learning.learned import Learned

    learn, trainings = settings.learn, store.trainings(settings.name)
    if learn.model is not None and settings.features.kind is None and learn.field is None:
        fix = "add [features] with text, image, columns or file"
        yield Check("learn", False, f"learn.model {learn.model!r} has no features to learn from", fix)
    elif learn.model is not None:
        for name, one in trainings.items():
            share = f"agrees with annotators on {percent(one.agreement, 0)} of held-out items"
            how = share if one.informs else "no better than guessing yet"
            detail = f"{name}: {learn.model}, from {one.items:,} items, {how}"
            yield Check("learn", True, detail)
        if not trainings:
            yield Check("learn", True, f"{learn.model}: not trained yet; the next run with enough labels trains it")
    elif settings.features.kind is not None and len(store.key_column(settings.name)):
        for name, known in stored_evidence(settings, store, connector.questions()).items():
            method = Learned(settings.combine.of(name).method)
            fitted = known.features is not None and combined(settings, store, {name: known}, silent)[name]
            if fitted and method.predictions(known, fitted):
                hint = '[learn] with model = "logistic" would save labels; `hitl replay --learn` says how many'
                yield Check("learn", True, f"{name}: a model would learn from the features: {hint}")


def _features(settings: Settings, store: Store) -> Iterator[Check]:
    """Check that all items have features, if `[features]` is set."""
    items = store.items(settings.name).column("item").to_pylist()
    if settings.features.kind is None or not items:
        return
    if settings.features.file is not None:
        try:
            file_source(str(settings.features.file), item_names(settings, store))  # warns of ids that do not match
        except HitlError as error:
            yield Check("features", False, str(error), "fix the file, or its name in [features]")
            return
    x_nd = stored_features(settings, store, items)
    if x_nd is None:
        fix = "`hitl embed --project`, or the next run"
        yield Check("features", False, "not computed yet, or computed with other settings", fix)
        return
    have = int((x_nd == x_nd).all(axis=1).sum()) if x_nd.shape[1] else 0
    detail, fix = f"{have:,} of {len(items):,} items, {x_nd.shape[1]:,} numbers each", "lists the others, and why"
    yield Check("features", have == len(items), detail, f"`hitl embed --project` {fix}")


def _graph(settings: Settings, store: Store) -> Iterator[Check]:
    """Check that a combiner uses the graph. Count edges, items without edges, and edges to unknown items."""
    kind, questions = settings.graph.kind, settings.combine.questions
    methods = {"combine": settings.combine, **{f"combine.{question}": own for question, own in questions.items()}}
    combiners = {f"{name}.method {own.method!r}": chosen(*own.arguments) for name, own in methods.items()}
    if kind is None:
        for name, method in combiners.items():
            if "graph" in needs_of(method):
                yield Check("graph", False, f"{name} needs one", "add [graph] with file or neighbours")
        return
    if not any("graph" in method.uses for method in combiners.values()):
        fix = 'combine.method = "network-ibcc" or "network-dawid-skene" uses it; or take the graph away'
        problem = "; ".join(f"{name} does not use it" for name in combiners)
        yield Check("graph", False, problem, fix)
    items = tuple(store.items(settings.name).column("item").to_pylist())
    if not items:
        return
    if kind == "neighbours" and settings.features.kind is None:
        fix = "add [features] with text, image, columns or file"
        yield Check("graph", False, "graph.neighbours has no features to find neighbours by", fix)
        return
    try:
        linked = graph_of(settings, store, items, stored_features(settings, store, items))
    except HitlError as error:
        yield Check("graph", False, str(error), "fix the file, or its name in [graph]; `hitl pull` reads the items")
        return
    if linked is None:
        yield Check("graph", False, "not built yet: it needs the features", "`hitl embed --project`")
        return
    edges, left_out = counted(linked.edges, "edge"), counted(linked.left_out, "edge")
    alone = f"; {counted(linked.alone, 'item has', 'items have')} none" if linked.alone else ""
    others = f"; left out: {left_out} to items that the project does not have" if linked.left_out else ""
    yield Check("graph", True, f"{edges} among {counted(len(items), 'item')}{alone}{others}")


def _skills(settings: Settings, store: Store) -> Iterator[Check]:
    """Check that for each item some annotator has the skills it requires."""
    items = store.items(settings.name).column("item").to_pylist()
    if settings.crew.skill_field is None or not items:
        return
    crew = crew_of(settings, store)
    lacks = missing_skills(items, crew)
    if not crew.names:
        return
    if not crew.needs:
        field = settings.crew.skill_field
        yield Check(
            "skills", False, f"no item has the field {field!r}", "set crew.skill_field to the field with skills"
        )
        return
    if lacks:
        yield Check("skills", False, missing_in_words(lacks, crew), "fix crew.skills, or ask an annotator who has them")
    else:
        yield Check("skills", True, f"needed by {counted(len(crew.needs), 'item')}; the crew has them")
