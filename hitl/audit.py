"""Whether platform and store agree: every answer, every foreign prediction, and what was pushed and confirmed.

An audit reads the platform plainly, without the code that pulls and pushes, and changes nothing. `repair` mends what
it found: evidence by a pull of everything, the platform through the outbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hitl import cycle
from hitl.exchange import Audited, Connector, Difference, Progress, SeenAnswer, Snapshot, silent
from hitl.project import require_place

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.store import Store

EVIDENCE = frozenset({"item", "annotation", "prediction"})
"""What is mended in the store; all else is mended on the platform."""

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Audit:
    """What was compared (name -> number) and what differs."""

    compared: Mapping[str, int]
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def audit(settings: Settings, store: Store, connector: Connector) -> Audit:
    """Compare platform and store as they are now. Raises BadSettings where the store is of another place.

    A connector that cannot be read in this way (`hitl.exchange.Audited`) is pulled whole, and its pushes are not
    looked at.
    """
    if store.cursor(settings.name) is not None:
        require_place(store, settings.name, connector)
    operations = store.operations(settings.name)
    confirmed = [operation for operation, state in operations if state == "confirmed"]
    there = connector.snapshot() if isinstance(connector, Audited) else pulled(connector)
    here = store.held(settings.name).snapshot()
    differences = [*_evidence(there, here)]
    differences += [Difference(o.kind, o.key, "it was not pushed yet") for o, state in operations if state == "pending"]
    if isinstance(connector, Audited):
        differences += connector.departures(confirmed)
    compared = {
        "items": len(there.answers),
        "annotations": sum(len({one.key for one in said}) for said in there.answers.values()),
        "predictions": len(there.predictions),
        "operations": len(operations),
    }
    return Audit(compared, tuple(differences))


def repair(settings: Settings, store: Store, connector: Connector, found: Audit, progress: Progress = silent) -> Audit:
    """Mend what an audit found, under the project's lease, and audit again. Raises Busy, Refused, Unreachable."""
    kinds = {difference.what for difference in found.differences}
    with store.lease(settings.name) as lease:
        if kinds & EVIDENCE:
            store.reset_cursor(lease)
            cycle.pull(lease, store, connector, progress)
        if kinds - EVIDENCE:
            for _ in cycle.push(lease, store, connector, progress, verify=True):
                pass
    return audit(settings, store, connector)


def pulled(connector: Connector) -> Snapshot:
    """What a pull of everything brings."""
    answers: dict[str, set[SeenAnswer]] = {}
    predictions: set[tuple[str, str, str]] = set()
    for page in connector.pull(None):
        for item in page.items:
            answers.setdefault(item.key, set())
        for row in page.annotations:
            answers.setdefault(row.item, set()).add(
                SeenAnswer(row.key, row.question, row.annotator, row.label, row.kind)
            )
        predictions |= {(row.item, row.question, row.model) for row in page.predictions}
    return Snapshot({item: frozenset(said) for item, said in answers.items()}, frozenset(predictions))


def _evidence(there: Snapshot, here: Snapshot) -> Iterator[Difference]:
    for item in sorted(there.answers.keys() | here.answers.keys()):
        if item not in here.answers:
            yield Difference("item", item, "the store lacks it")
        elif item not in there.answers:
            yield Difference("item", item, "it is gone on the platform")
        yield from _answers(item, there.answers.get(item, frozenset()), here.answers.get(item, frozenset()))
    for item, question, model in sorted(there.predictions ^ here.predictions):
        lacks = "the store lacks it" if (item, question, model) in there.predictions else "it is gone on the platform"
        yield Difference("prediction", f"{model} of {item}, {question}", lacks)


def _answers(item: str, there: frozenset[SeenAnswer], here: frozenset[SeenAnswer]) -> Iterator[Difference]:
    """A line for each annotation of an item that differs."""
    for key in sorted({one.key for one in there ^ here}):
        platform, stored = ([one for one in said if one.key == key] for said in (there, here))
        why = "the store has another answer" if platform and stored else "the store lacks it"
        yield Difference("annotation", f"{key} of {item}", why if platform else "it is gone on the platform")
