"""Say in words what a certificate proves, on what it rests, and what holds for labels that have changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import betaincinv

from hitl.active.guarantees.audit import OPEN, PROVEN
from hitl.certificates.certificate import Certificate, Finding
from hitl.formatting import counted, percent


def statement(certificate: Certificate) -> tuple[str, ...]:
    """Return the lines of the statement: a line for each claim, then the assumptions."""
    findings = certificate.found()
    return (*(_claim(certificate, finding) for finding in findings), *_auditors(certificate))


def _claim(certificate: Certificate, finding: Finding) -> str:
    terms = certificate.terms
    whose = f"{terms.groups} {finding.group}: " if finding.group else ""
    promise, sure = f"{100 * terms.error:g} %", f"{100 * terms.confidence:g} % confidence"
    labels = f"the {counted(finding.labels, 'label')}"
    after = f"after {counted(finding.audited, 'audited label')}, {finding.wrong:,} of them wrong"
    most = f"at most {finding.at_most:,} of {labels} ({percent(finding.at_most / finding.labels, 2)})"
    if terms.mended:
        most += f" besides the {finding.wrong:,} that are corrected" if finding.wrong else ""
    if finding.state == PROVEN:
        return f"{whose}proven {after}: {most} are wrong, no more than the {promise} promised ({sure})"
    if finding.state == OPEN:
        return f"{whose}not proven {after}: {most} are wrong ({sure}); the promise is {promise}"
    return f"{whose}refuted {after}: more than {promise} of {labels} are wrong"


def _auditors(certificate: Certificate) -> list[str]:
    terms, (first, second) = certificate.terms, certificate.auditors
    names = ", ".join(name for name in (first, second) if name) or "not named"
    lines = [f"auditors: {names}"]
    if terms.second:
        asked, wrong = certificate.rechecked()
        line = f"labels that the first called right and a second checked: {asked:,}, of which wrong: {wrong:,}"
        if asked:
            line += f"; so at most {percent(_upper(wrong, asked, terms.confidence))} of such labels are wrong"
        lines.append(f"{line} ({100 * terms.confidence:g} % confidence)" if asked else line)
    missed = f"at most {100 * terms.missed:g} % of the wrong labels" if terms.missed else "no wrong label"
    lines.append(f"this holds if auditors take {missed} for right")
    return lines


def _upper(wrong: int, asked: int, confidence: float) -> float:
    """Return the upper Clopper-Pearson bound of a share, one-sided."""
    return 1.0 if wrong == asked else float(betaincinv(wrong + 1, asked - wrong, confidence))


@dataclass(frozen=True)
class Comparison:
    """How a table of labels differs from the certified ones.

    Attributes:
        changed: item -> (certified label, present label), other than corrections that the audit asked for.
        uncorrected: items whose label the audit found wrong and that still have it, although errors are to be mended.
        missing: certified items that the table lacks.
        added: items that no certificate is about.
    """

    changed: Mapping[str, tuple[str, str]]
    uncorrected: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def same(self) -> bool:
        """True if the certificate is about exactly these labels."""
        return not (self.changed or self.uncorrected or self.missing or self.added)


def compare(certificate: Certificate, labels: Mapping[str, str]) -> Comparison:
    """Compare a table of labels, item -> label, with the certified ones."""
    corrections = certificate.corrections() if certificate.terms.mended else {}
    changed, uncorrected, missing = dict[str, tuple[str, str]](), [], []
    for item, label in zip(certificate.labels.items, certificate.labels.labels, strict=True):
        present = labels.get(item)
        if item in corrections:
            right = corrections[item]
            if present == label:
                uncorrected.append(item)
            elif present is not None and right is not None and present != right:
                changed[item] = right, present
        elif present is None:
            missing.append(item)
        elif present != label:
            changed[item] = label, present
    known = set(certificate.labels.items)
    return Comparison(changed, tuple(uncorrected), tuple(missing), tuple(item for item in labels if item not in known))
