"""Define `hitl certify` and `hitl verify`: promise by an audit how many labels are wrong, and check a promise."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.options import Json, grouped, opt
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.certificates.certificate import Certificate, Labels, Terms

PROVEN, REFUTED, OPEN = 0, 1, 3
"""Exit codes of `hitl certify`."""


def share(text: str) -> float:
    """Read 1% or 0.01. Raises BadSettings unless it is between 0 and 1."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r}: expected a share, as 1% or 0.01")
    return value


@dataclass(frozen=True)
class Promised:
    """What to promise, and how to audit. Taken from the certificate once the audit has begun."""

    error: Annotated[
        float | None, opt("Greatest share of wrong labels to promise.", "--error", parser=share, metavar="SHARE")
    ] = None
    confidence: Annotated[
        float | None, opt("Confidence of the promise; default 95%.", parser=share, metavar="SHARE")
    ] = None
    as_is: Annotated[
        bool, opt("Promise it of the labels as they are, not after correcting the errors found.", "--as-is")
    ] = False
    per: Annotated[str | None, opt("Also promise it of each class (label), or of each value of another column.")] = None
    missed: Annotated[
        float | None,
        opt("Share of wrong labels that auditors may take for right; default 0%.", parser=share, metavar="SHARE"),
    ] = None
    recheck: Annotated[
        float | None,
        opt("With --second-answers: share of the items that both answer; default 10%.", parser=share, metavar="SHARE"),
    ] = None
    seed: Annotated[str | None, opt("Text that determines the draws, as dice thrown in public; default: random.")] = (
        None
    )

    def terms(self, second: bool) -> Terms:
        """Return the terms of a new certificate. Raises BadSettings without an error to promise."""
        from hitl.certificates.certificate import Terms

        if not self.error:
            raise BadSettings("certify: expected what to promise, as --error 1%")
        if self.recheck is not None and not second:
            raise BadSettings("--recheck: expected --second-answers, the table of the second auditor")
        recheck = (0.1 if self.recheck is None else self.recheck) if second else 0.0
        return Terms(
            error=self.error,
            confidence=self.confidence or 0.95,
            mended=not self.as_is,
            missed=self.missed or 0.0,
            recheck=recheck,
            second=second,
            seed=self.seed or secrets.token_hex(16),
            groups=self.per or "",
        )


@grouped
def certify(
    labels: Annotated[Path, typer.Argument(help="Table to certify: item, label, confidence, and what auditors see.")],
    promised: Promised,
    answers: Annotated[Path, opt("Table that auditors fill in: item, answer.")] = Path("audit.csv"),
    second_answers: Annotated[
        Path | None, opt("Table for a second auditor, who checks what the first calls wrong.", "--second-answers")
    ] = None,
    by: Annotated[str, opt("Who audits; a name for the certificate.")] = "",
    second: Annotated[str, opt("Who is the second auditor.")] = "",
    batch: Annotated[int, opt("Number of items to draw at a time.", min=1)] = 25,
    budget: Annotated[int | None, opt("Number of items to audit at most.", min=1)] = None,
    certificate: Annotated[Path, opt("Certificate to write, and to continue.")] = Path("certificate.json"),
    output: Annotated[
        Path | None, opt("Table of labels to write, with the errors that were found corrected.", "--output", "-o")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove by an audit how many labels are wrong at most.

    Repeat it: each call reads the answers, and draws the next items until the promise is proven or refuted. Exit with 0
    if it is proven, 1 if it is refuted, 3 while it is open.
    """
    from hitl.certificates import files
    from hitl.certificates.certificate import Certificate
    from hitl.certificates.statement import statement

    audited, shown = files.read_labels(labels, promised.per)
    if certificate.exists():
        document = Certificate.read(certificate)
        _require_same(document, audited, promised, certificate)
    else:
        document = Certificate(terms=promised.terms(second_answers is not None), started=_now(), labels=audited)
    if document.terms.second and second_answers is None:
        raise BadSettings("certify: this audit has a second auditor; expected --second-answers")
    document = document.with_answers(
        files.read_answers(answers, document),
        files.read_answers(second_answers, document) if second_answers else {},
    )
    names = (by or document.auditors[0], second or document.auditors[1])
    document = _drawn(document.changed(auditors=names), batch, budget)
    document = document.changed(findings=tuple(document.found()), statement=statement(document))
    document.write(certificate)
    first, other = document.waiting()
    files.write_questions(answers, first, shown)
    written = [certificate, *([answers] if first else [])]
    if second_answers is not None and other:
        files.write_questions(second_answers, other, shown)
        written.append(second_answers)
    if output is not None:
        files.write_corrected(output, document)
        written.append(output)
    unknown = files.other_answers(document)
    if unknown:
        show.warning(f"answers that are no label of {labels} count as wrong: {', '.join(unknown[:5])}")
    lines = [*document.statement, *show.wrote(written)]
    if first or other:
        whose = [f"{show.counted(len(first), 'item')} in {answers}"] if first else []
        whose += [f"{show.counted(len(other), 'item')} in {second_answers}"] if other else []
        lines.append(f"next: fill in the column answer of {' and of '.join(whose)}, then run this again")
    elif document.audit.state == "open":
        lines.append("the budget is spent; raise --budget to go on")
    data = {"state": document.audit.state, "findings": [finding.model_dump() for finding in document.findings]}
    show.result(data | {"statement": document.statement, "waiting": {"first": first, "second": other}}, lines, as_json)
    raise typer.Exit({"proven": PROVEN, "refuted": REFUTED}.get(document.audit.state, OPEN))


def _drawn(document: Certificate, batch: int, budget: int | None) -> Certificate:
    """Return the certificate with the next items drawn, if it waits for no answer and is still open."""
    first, second = document.waiting()
    if first or second or document.audit.state != "open":
        return document
    count = batch if budget is None else min(batch, budget - len(document.audit.draws))
    return document.with_batch(count, _now()) if count > 0 else document


def _require_same(document: Certificate, audited: Labels, promised: Promised, path: Path) -> None:
    """Raise BadSettings if other terms are asked for than those that the audit began with. Warn of other labels."""
    terms, wanted = (
        document.terms,
        {"error": promised.error, "confidence": promised.confidence, "missed": promised.missed},
    )
    wanted |= {"recheck": promised.recheck, "seed": promised.seed, "groups": promised.per}
    for name, value in wanted.items():
        if value is not None and value != getattr(terms, name):
            flag = "per" if name == "groups" else name
            raise BadSettings(
                f"--{flag} {value}: the audit in {path} began with {getattr(terms, name) or 'none'}; leave the option "
                "out to continue it, or name another --certificate"
            )
    if promised.as_is and terms.mended:
        raise BadSettings(f"--as-is: the audit in {path} began without it; name another --certificate to begin again")
    if audited.digest != document.labels.digest:
        show.warning(f"the labels have changed since {document.started}; the certificate is about those of then")


def verify(
    certificate: Annotated[Path, typer.Argument(help="Certificate of `hitl certify`.")],
    labels: Annotated[Path, typer.Argument(help="Table of labels as it is now: item, label.")],
    as_json: Json = False,
) -> None:
    """Check a certificate: draw its items again, count again, and compare the labels with the certified ones.

    It needs nothing but the two files. Exit with 1 if the promise is not proven, or if labels are not those certified.
    """
    from hitl.certificates import files
    from hitl.certificates.certificate import Certificate
    from hitl.certificates.statement import compare, statement
    from hitl.errors import BadTable

    document = Certificate.read(certificate)
    try:
        lines = list(statement(document))
    except BadTable as error:
        raise BadTable(f"{certificate}: {error}; the file was changed, or is not of hitl") from None
    if tuple(lines) != document.statement:
        raise BadTable(f"{certificate}: its statement is not what its draws and answers prove; it was changed")
    given, _ = files.read_labels(labels)
    difference = compare(document, dict(zip(given.items, given.labels, strict=True)))
    texts = {
        "changed": [f"{item}: {old} is now {new}" for item, (old, new) in difference.changed.items()],
        "uncorrected": [f"{item}: found wrong and not corrected" for item in difference.uncorrected],
        "missing": [f"{item}: certified, and missing now" for item in difference.missing],
        "added": [f"{item}: not in the certificate" for item in difference.added],
    }
    number = sum(map(len, texts.values()))
    for part in texts.values():
        lines += part[:10] + ([f"and {len(part) - 10:,} more like these"] if len(part) > 10 else [])
    if number:
        lines.append(f"{show.counted(number, 'label')} not covered by the certificate; all others are as certified")
    else:
        lines.append(f"all {show.counted(len(given.items), 'label')} are as certified")
    state = document.audit.state
    data = {
        "state": state,
        "same": difference.same,
        "changed": difference.changed,
        "uncorrected": difference.uncorrected,
    }
    data |= {"missing": difference.missing, "added": difference.added, "statement": document.statement}
    show.result(data, lines, as_json)
    raise typer.Exit(0 if state == "proven" and difference.same else 1)


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
