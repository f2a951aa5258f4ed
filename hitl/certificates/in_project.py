"""Audit the labels of a project: its last consensus, answered on the platform by a named auditor.

Drawn items are sent back to the auditor, as a lead does by hand on the pages: the next run asks them first, and an
answer given since counts. A skip counts as "cannot say". Tables do not show that an auditor repeats an earlier answer,
so there the auditor must be someone who has not labeled the items. A drawn item that is deleted can no longer be
answered, and counts as "cannot say" too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hitl.certificates.certificate import UNKNOWN, Labels
from hitl.certificates.files import labels_in
from hitl.errors import BadSettings
from hitl.export import label_tables
from hitl.kinds.kind import multiple_choices
from hitl.operations import Judgement
from hitl.plan import Rework
from hitl.project import item_names, stored_evidence, stored_questions
from hitl.settings import Settings
from hitl.store import Store

BY = "hitl certify"
"""Who sends audited items back, as a lead sees it."""


@dataclass(frozen=True)
class AuditedProject:
    """A question of a project whose labels are audited.

    Attributes:
        question: name of the question, whose answers are one class per item.
        names: platform's key -> the user's own id.
        labels: the labels of the last run that have a basis.
        classes: the classes of the question now.
    """

    settings: Settings
    store: Store
    question: str
    names: dict[str, str]
    labels: Labels
    classes: frozenset[str]

    @classmethod
    def of(cls, settings: Settings, store: Store, question: str | None, groups: str | None) -> AuditedProject:
        """Read the labels of the last run. Raises BadSettings before the first, or for parts and multiple choices."""
        latest = store.latest(settings.name)
        if latest is None:
            raise BadSettings("certify: no run yet; run `hitl run` first")
        results, plan = latest
        if question is None and len(results) > 1:
            raise BadSettings(f"certify: the project has several questions: add --question {'|'.join(results)}")
        question = question or next(iter(results))
        evidence = stored_evidence(settings, store, stored_questions(settings, store))
        one = any(
            question in group.values()
            for group in multiple_choices({n: r.classes for n, r in results.items()}).values()
        )
        if question not in results or question not in evidence or one or evidence[question].parts:
            raise BadSettings(
                f"certify: {question!r} is not a question with one class for each item; for other kinds, write a table "
                "with `hitl export`, and certify that"
            )
        names = item_names(settings, store)
        judgement = Judgement({question: evidence[question]}, {question: results[question]}, plan)
        table = label_tables(judgement, store.items(settings.name), names)[question]
        table = table.filter(table.column("label").is_valid())
        labels, _ = labels_in(table, "the labels of the last run", groups)
        return cls(settings, store, question, names, labels, frozenset(map(str, results[question].classes)))

    def require_known(self, auditor: str) -> None:
        """Raise BadSettings unless this annotator is in the crew, or has answered as of the last pull."""
        there = {*self.store.annotator_names(self.settings.name).values(), *self.settings.crew.annotators}
        there -= {*self.settings.crew.judges}
        if auditor not in there:
            raise BadSettings(
                f"--by, --second: no annotator {auditor!r}; expected one of {', '.join(sorted(there))}, or a name that "
                "you add to crew.annotators"
            )

    def answers_of(self, auditor: str) -> dict[str, str]:
        """Return item (own id) -> answer that the auditor gave since the item was sent to them."""
        sent = {row.item for row in self._sent(auditor)} & self.names.keys()
        return {
            self.names[item]: UNKNOWN if label is None else label
            for item, who, question, label in self.store.replies(self.settings.name)
            if (who, question) == (auditor, self.question) and item in sent
        }

    def gone(self, certified: Iterable[str]) -> frozenset[str]:
        """Return those of the certified items (own ids) that are no longer in the project.

        Raises BadSettings if these are most of them, as after a change of `source.key`.
        """
        items = frozenset(certified)
        gone = items.difference(self.names.values())
        if 2 * len(gone) > len(items):
            raise BadSettings(
                f"certify: {len(gone):,} of the {len(items):,} items of the certificate are not in the project, which "
                "has other items or ids (source.key) now; undo that, or begin an audit with another --certificate"
            )
        return gone

    def require_same_names(self, certified: Iterable[str], answers: Iterable[str]) -> None:
        """Raise BadSettings if certified labels are no class any more, and auditors answer with others in their place.

        Such answers would count as wrong for good.
        """
        certified = frozenset(certified)
        lost, new = certified - self.classes, (frozenset(answers) & self.classes) - certified
        if lost and new:
            raise BadSettings(
                f"certify: auditors answer {', '.join(sorted(new))}; the certificate has {', '.join(sorted(lost))}, "
                f"no class of {self.question!r} now. If it was renamed, take the old name back until the audit "
                "has ended, or begin one with another --certificate"
            )

    def send(self, items: Iterable[str], auditor: str) -> int:
        """Send these items (own ids) to the auditor, unless they already are. Return how many were sent now."""
        there, key_of = {row.item for row in self._sent(auditor)}, {own: key for key, own in self.names.items()}
        new = [key_of[item] for item in items if item in key_of and key_of[item] not in there]
        for key in new:
            self.store.send_back(self.settings.name, key, auditor, BY, "audit")
        return len(new)

    def _sent(self, auditor: str) -> list[Rework]:
        return [row for row in self.store.sent_back(self.settings.name) if row.annotator == auditor and row.by == BY]
