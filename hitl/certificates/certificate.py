"""A certificate: the labels, how they were audited, and what that proves, in one JSON file.

The file is written when the audit begins and again after every batch of answers, so it is also the audit's memory. The
labels are in it, and their digest is part of the seed: whoever reads it can draw the same items, count the answers
again, and see which labels have changed since (`hitl verify`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hitl import __version__
from hitl.active.guarantees.audit import Audit, Draw, Promise
from hitl.errors import BadTable
from hitl.tables.write import atomic

Share = Annotated[float, Field(ge=0, le=1)]

CLOSE = 1e-6
"""Greatest difference between recorded chances and those computed again, perhaps on another processor."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Labels(_Part):
    """The N audited labels.

    Attributes:
        items, labels: (N,) names of the items, and their labels.
        doubt: (N,) 1 - confidence of each label.
        groups: (N,) class or slice of each label if there is a claim about each, or empty.
    """

    items: tuple[str, ...]
    labels: tuple[str, ...]
    doubt: tuple[Share, ...]
    groups: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _are_one_table(self) -> Labels:
        sizes = {len(self.items), len(self.labels), len(self.doubt), len(self.groups or self.items)}
        if len(sizes) > 1 or not self.items:
            raise ValueError("expected as many labels, doubts and groups as items, and at least one")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the items with their labels."""
        pairs = json.dumps([self.items, self.labels], ensure_ascii=False, separators=(",", ":"))
        return sha256(pairs.encode()).hexdigest()


class Terms(_Part):
    """What is promised (`Promise`), and how items are audited.

    Attributes:
        recheck: share of the items that a second auditor answers whatever the first says; 0 without a second.
        second: True if a second auditor answers what the first calls wrong.
        seed: text from which, with the digest of the labels, the items are drawn.
        groups: name of the column of `Labels.groups`, or "".
    """

    error: Annotated[float, Field(gt=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    mended: bool = True
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0
    recheck: Share = 0.0
    second: bool = False
    seed: str
    groups: str = ""

    @property
    def promise(self) -> Promise:
        """Promise of the audit, without seed and auditors."""
        return Promise(self.error, self.confidence, self.mended, self.missed)


class Batch(_Part):
    """`count` items drawn together at these (S,) chances of the strata. `drawn`: when (ISO 8601)."""

    drawn: str
    count: Annotated[int, Field(ge=1)]
    chances: tuple[float, ...]


class Answer(_Part):
    """Labels that the auditors give a drawn item; None until they do, and "?" if they cannot say."""

    item: str
    first: str | None = None
    second: str | None = None


class Finding(_Part):
    """What the audit says about one claim.

    Attributes:
        group: name of the group; "" for all labels.
        labels: number of labels that the claim is about.
        audited, wrong: number of labels audited, and found wrong.
        state: "proven", "refuted" or "open".
        at_most: greatest number of wrong labels that the audit does not exclude; if errors are mended, besides those
            that it found.
    """

    group: str
    labels: int
    audited: int
    wrong: int
    state: str
    at_most: int


class Certificate(_Part):
    """The whole document. `statement` and `findings` follow from the rest, and are there for readers.

    Attributes:
        started: when the audit began (ISO 8601).
        auditors: the first, then the second; "" if not named.
        answers: one for each draw.
    """

    format: Literal[1] = 1
    hitl: str = __version__
    statement: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    terms: Terms
    started: str
    auditors: tuple[str, str] = ("", "")
    batches: tuple[Batch, ...] = ()
    answers: tuple[Answer, ...] = ()
    labels: Labels

    @classmethod
    def read(cls, path: Path) -> Certificate:
        """Read a certificate. Raises BadTable if the file is missing or is not one, or if its draws are forged."""
        try:
            document = cls.model_validate_json(path.read_bytes())
            _ = document.audit  # draws again, and raises BadTable for forged draws
            return document
        except FileNotFoundError:
            raise BadTable(f"{path}: no such file") from None
        except BadTable as error:
            raise BadTable(f"{path}: {error}; the file was changed, or is not of hitl") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadTable(f"{path}: not a certificate: {where + ': ' if where else ''}{first['msg']}") from None

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        with atomic(path) as file:
            file.write((self.model_dump_json(indent=1) + "\n").encode())

    def changed(self, **fields: Any) -> Certificate:
        """Return a certificate with these fields changed."""
        return Certificate(**{**{name: getattr(self, name) for name in Certificate.model_fields}, **fields})

    # -- audit ------------------------------------------------------------------------------------------

    @cached_property
    def audit(self) -> Audit:
        """The audit with all draws, and the answers up to the first that is missing.

        Raises BadTable if the chances of a batch do not follow from the answers before it, or if answers are not one
        for each draw.
        """
        terms, labels = self.terms, self.labels
        groups = labels.groups or None
        audit = Audit(
            np.array(labels.doubt), terms.promise, f"{terms.seed} {labels.digest}", groups, recheck=terms.recheck
        )
        for number, batch in enumerate(self.batches, start=1):
            if audit.pending or not audit.open_claims:
                raise BadTable(f"batch {number} was drawn before the answers to the one before it, or after the end")
            wanted = audit.chances()
            if len(wanted) != len(batch.chances) or np.abs(np.subtract(wanted, batch.chances)).max() > CLOSE:
                raise BadTable(f"the chances of batch {number} do not follow from the answers before it")
            first = len(audit.draws)
            drawn = audit.draw(batch.count, batch.chances)
            answers = self.answers[first : first + len(drawn)]
            if [labels.items[draw.item] for draw in drawn] != [answer.item for answer in answers]:
                raise BadTable(f"the items of batch {number} are not those that its seed and its labels draw")
            outcomes = list(map(self._is_wrong, drawn, answers))
            missing = outcomes.index(None) if None in outcomes else len(outcomes)
            audit.record([bool(wrong) for wrong in outcomes[:missing]])
        if len(self.answers) != len(audit.draws):
            raise BadTable(f"it has {len(self.answers)} answers for {len(audit.draws)} draws")
        return audit

    def _is_wrong(self, draw: Draw, answer: Answer) -> bool | None:
        """Return whether the label is wrong, or None while an answer is missing.

        It is if the first auditor says so and no second disagrees, or if a second says so who was asked in any case.
        """
        if answer.first is None or self.waits_for_second(draw, answer):
            return None
        return (answer.first if answer.second is None else answer.second) != self.labels.labels[draw.item]

    def waits_for_second(self, draw: Draw, answer: Answer) -> bool:
        """Return True if the second auditor has yet to answer: what the first calls wrong, or what was drawn for it."""
        if not self.terms.second or answer.first is None or answer.second is not None:
            return False
        return draw.recheck or answer.first != self.labels.labels[draw.item]

    def with_batch(self, count: int, now: str) -> Certificate:
        """Return the certificate with `count` more draws; fewer if fewer items are left. `now`: ISO 8601."""
        chances = self.audit.chances()
        drawn = self.changed().audit.draw(count, chances)
        answers = [Answer(item=self.labels.items[draw.item]) for draw in drawn]
        batch = Batch(drawn=now, count=len(drawn), chances=chances)
        return self.changed(batches=(*self.batches, batch), answers=(*self.answers, *answers))

    def with_answers(self, first: Mapping[str, str], second: Mapping[str, str]) -> Certificate:
        """Return the certificate with these answers, item -> label. An answer that is already recorded stays."""
        answers = [
            Answer(
                item=old.item,
                first=first.get(old.item) if old.first is None else old.first,
                second=second.get(old.item) if old.second is None else old.second,
            )
            for old in self.answers
        ]
        return self.changed(answers=tuple(answers))

    def waiting(self) -> tuple[list[str], list[str]]:
        """Return the items that the first, and the second auditor have yet to answer, in the order of the draws."""
        pairs = zip(self.audit.draws, self.answers, strict=True)
        second = [answer.item for draw, answer in pairs if self.waits_for_second(draw, answer)]
        return [answer.item for answer in self.answers if answer.first is None], second

    # -- results ----------------------------------------------------------------------------------------

    def found(self) -> list[Finding]:
        """Return what the audit says about each claim so far."""
        audit = self.audit
        return [
            Finding(
                group=claim.name,
                labels=claim.size,
                audited=claim.audited,
                wrong=claim.wrong,
                state=claim.state,
                at_most=audit.bound(claim),
            )
            for claim in audit.claims
        ]

    def corrections(self) -> dict[str, str | None]:
        """Return item -> right label of the wrong ones that the audit found; None if auditors could not say."""
        right: dict[str, str | None] = {}
        for draw, answer in zip(self.audit.draws, self.answers, strict=True):
            if self._is_wrong(draw, answer):
                label = answer.first if answer.second is None else answer.second
                right[answer.item] = None if label == UNKNOWN else label
        return right

    def rechecked(self) -> tuple[int, int]:
        """Return how many labels that the first called right a second answered, and how many of these were wrong."""
        pairs = zip(self.audit.draws, self.audit.wrong, self.answers, strict=False)
        own = [wrong for draw, wrong, answer in pairs if draw.recheck and answer.first == self.labels.labels[draw.item]]
        return len(own), sum(own)


UNKNOWN = "?"
"""Answer of an auditor who cannot say; the label then counts as wrong."""
