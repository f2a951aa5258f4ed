"""Compare platform and store: all answers, all predictions not made by hitl, and all pushed operations.

An audit changes nothing. It reads the platform without the code that pulls and pushes, if the connector has a second
way to read (`Connector.snapshot`). `repair` fixes the differences: in the store by pulling everything again, on the
platform by pushing again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hitl import cycle
from hitl.operations import push
from hitl.platform import Connector, Difference, Operation, Progress, SeenAnswer, Snapshot, silent
from hitl.project import lease_seconds, require_place
from hitl.settings import Settings
from hitl.store import Store

EVIDENCE = frozenset({"item", "annotation", "prediction"})
"""Kinds of difference that are fixed in the store; all others are fixed on the platform."""

LACKS, GONE = "not in the store", "deleted on the platform"


@dataclass(frozen=True)
class Audit:
    """Result of an audit.

    Attributes:
        compared: kind of row -> number of rows compared.
        differences: differences found.
        left_out: problems of the pull that repaired the store, if there was one.
    """

    compared: Mapping[str, int]
    differences: tuple[Difference, ...]
    left_out: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if nothing differs."""
        return not self.differences


def audit(settings: Settings, store: Store, connector: Connector, progress: Progress = silent) -> Audit:
    """Compare platform and store as they are now. Raises BadSettings if the stored data is from another place.

    If pushed operations cannot be read back (`Connector.departures` returns None), only the pulled data is compared.
    """
    if store.cursor(settings.name) is not None:
        require_place(store, settings.name, connector)
    operations = store.operations(settings.name)
    confirmed = [operation for operation, state in operations if state == "confirmed"]
    there = connector.snapshot(progress)
    here = store.held(settings.name).snapshot()
    differences = [*_evidence(there, here)]
    differences += [Difference(o.kind, o.key, "not pushed yet") for o, state in operations if state == "pending"]
    departures = connector.departures(confirmed, progress)
    differences += departures or ()
    compared = {
        "items": len(there.answers),
        "annotations": sum(len({one.key for one in said}) for said in there.answers.values()),
        "predictions": len(there.predictions),
        "operations": 0 if departures is None else len(operations),
    }
    return Audit(compared, tuple(differences))


def repair(settings: Settings, store: Store, connector: Connector, found: Audit, progress: Progress = silent) -> Audit:
    """Fix the differences that an audit `found`, and audit again. Raises Busy, Refused or Unreachable."""
    kinds, left_out = {difference.what for difference in found.differences}, tuple[str, ...]()
    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        if kinds & EVIDENCE:
            left_out = cycle.pull(lease, store, connector, progress, full=True).problems
        if kinds - EVIDENCE:
            queued = {each.key for each, _ in store.operations(settings.name) if each.kind == "assign"}
            strays = {one.key for one in found.differences if one.what == "assign"} - queued  # assigned by others
            store.queue(lease, [Operation("assign", key, {"items": []}) for key in sorted(strays)])
            for _ in push(lease, store, connector, progress, verify=True):
                pass
    return replace(audit(settings, store, connector, progress), left_out=left_out)


def _evidence(there: Snapshot, here: Snapshot) -> Iterator[Difference]:
    for item in sorted(there.answers.keys() | here.answers.keys()):
        if item not in here.answers:
            yield Difference("item", item, LACKS)
        elif item not in there.answers:
            yield Difference("item", item, GONE)
        elif _as_json(there.data.get(item)) != _as_json(here.data.get(item)):
            yield Difference("item", item, "the store has different data")
        yield from _answers(item, there.answers.get(item, frozenset()), here.answers.get(item, frozenset()))
    for each in sorted(there.predictions.keys() | here.predictions.keys()):
        item, question, model = each
        platform, stored = there.predictions.get(each), here.predictions.get(each)
        if platform is None or stored is None:
            yield Difference("prediction", f"{model} of {item}, {question}", LACKS if stored is None else GONE)
        elif dict(platform) != dict(stored):
            yield Difference("prediction", f"{model} of {item}, {question}", "the store has different probabilities")


def _as_json(data: object) -> str:
    return json.dumps(data, sort_keys=True, default=str)


def _answers(item: str, there: frozenset[SeenAnswer], here: frozenset[SeenAnswer]) -> Iterator[Difference]:
    """Yield a difference for each annotation that differs between platform and store."""
    for key in sorted({one.key for one in there ^ here}):
        platform, stored = ([one for one in said if one.key == key] for said in (there, here))
        why = "the store has a different answer" if platform and stored else LACKS
        yield Difference("annotation", f"{key} of {item}", why if platform else GONE)
