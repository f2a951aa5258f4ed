"""Define `hitl certify` and `hitl verify`: promise by an audit how many labels are wrong, and check a promise."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Config, Json, OneQuestion, grouped, opt, refuse, share
from hitl.errors import BadSettings, Busy

if TYPE_CHECKING:
    from hitl.certificates.certificate import Certificate, Labels, Terms

REPLAYS = 100
"""Number of audits of `--replay`."""

CERTIFICATE = "certificate.json"
EXIT = {"proven": 0, "refuted": 1, "open": 3}
"""State of the audit -> exit code of `hitl certify`."""


@dataclass(frozen=True)
class Promised:
    """What to promise, and how to audit. It is in the certificate once the audit has begun."""

    error: Annotated[float | None, share("Greatest share of wrong labels to promise.")] = None
    confidence: Annotated[float | None, share("Confidence of the promise; default 95%.")] = None
    as_is: Annotated[
        bool,
        opt("Promise it of the labels as they are; default: of labels with the found errors corrected.", "--as-is"),
    ] = False
    per: Annotated[str | None, opt("Promise it of each class too (label), or of each value of another column.")] = None
    missed: Annotated[float | None, share("Share of wrong labels that auditors may overlook; default 0%.")] = None
    recheck: Annotated[
        float | None, share("With a second auditor: share of the items that both answer; default 10%.")
    ] = None
    seed: Annotated[
        str | None, opt("Text that determines the draws, as of dice thrown in public; default: random.")
    ] = None

    def terms(self, second: bool) -> Terms:
        """Return the terms of a new certificate. Raises BadSettings without an error to promise."""
        from pydantic import ValidationError

        from hitl.certificates.certificate import Terms

        if self.error is None:
            raise BadSettings("certify: expected what to promise, as --error 1%")
        if self.recheck is not None and not second:
            raise BadSettings("--recheck: expected a second auditor, with --second-answers or, in a project, --second")
        recheck = (0.1 if self.recheck is None else self.recheck) if second else 0.0
        try:
            return Terms(
                error=self.error,
                confidence=0.95 if self.confidence is None else self.confidence,
                mended=not self.as_is,
                missed=self.missed or 0.0,
                recheck=recheck,
                second=second,
                seed=self.seed or secrets.token_hex(16),
                groups=self.per or "",
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise BadSettings(f"--{first['loc'][0]} {first['input']:g}: {first['msg'].lower()}") from None

    def require_same(self, terms: Terms, path: Path) -> None:
        """Raise BadSettings if other terms are asked for than those that the audit of this certificate began with."""
        wanted = {"error": self.error, "confidence": self.confidence, "missed": self.missed, "recheck": self.recheck}
        for name, value in {**wanted, "seed": self.seed, "groups": self.per}.items():
            if value is not None and value != (began := getattr(terms, name)):
                raise BadSettings(
                    f"--{'per' if name == 'groups' else name} {value}: the audit in {path} began with "
                    f"{began or 'none'}; leave the option out to go on, or name another --certificate"
                )
        if self.as_is and terms.mended:
            raise BadSettings(f"--as-is: the audit in {path} began without it; name another --certificate")


@dataclass(frozen=True)
class Auditors:
    """Who answers, and where."""

    by: Annotated[str, opt("Auditor; in a project, the annotator who is asked.")] = ""
    second: Annotated[str, opt("Second auditor, who checks what the first calls wrong.")] = ""
    answers: Annotated[Path, opt("With LABELS: table that the auditor fills in: item, answer.")] = Path("audit.csv")
    second_answers: Annotated[
        Path | None, opt("With LABELS: table for a second auditor, who checks what the first calls wrong.")
    ] = None


@dataclass(frozen=True)
class _Source:
    """Where labels and answers come from: tables, or a project.

    Attributes:
        labels: the labels now.
        second: True if there is a second auditor.
        answers: certificate -> answers of both auditors, item -> label.
        ask: asks the auditors about items, and returns lines that say what is next.
    """

    labels: Labels
    second: bool
    answers: Callable[[Certificate], tuple[dict[str, str], dict[str, str]]]
    ask: Callable[[list[str], list[str]], list[str]]


@grouped
def certify(
    promised: Promised,
    auditors: Auditors,
    labels: Annotated[
        Path | None,
        typer.Argument(help="Table to certify: item, label, confidence, and what auditors see; without: a project."),
    ] = None,
    batch: Annotated[int, opt("Number of items to draw at a time.", min=1)] = 25,
    budget: Annotated[int | None, opt("Number of items to audit at most.", min=1)] = None,
    certificate: Annotated[Path, opt("Certificate to write, and to go on with.")] = Path(CERTIFICATE),
    output: Annotated[
        Path | None, opt("Table of labels to write, with the errors that were found corrected.", "--output", "-o")
    ] = None,
    replay: Annotated[
        Path | None, opt("With LABELS: only replay 100 audits with this table of true labels: item, label.")
    ] = None,
    question: OneQuestion = None,
    as_json: Json = False,
    config: Config = HERE,
) -> None:
    """Prove by an audit how many labels are wrong at most.

    Repeat it: each call reads the answers, and draws the next items until the promise is proven or refuted. Exit with 0
    if it is proven, 1 if it is refuted, 3 while it is open.
    """
    from hitl.certificates import files
    from hitl.certificates.certificate import Certificate
    from hitl.certificates.statement import statement
    from hitl.tables.write import require_distinct, require_writable

    if replay is not None:
        refuse(["output"] if output else [], "{}: not with --replay, which only counts")
        _replayed(labels, replay, promised, batch, budget, as_json)
        return
    if labels:
        refuse(["question"] if question else [], "{}: only in a project; the column label is certified")
        if auditors.second and not auditors.second_answers:
            raise BadSettings("--second: with a table of labels, expected --second-answers too")
        answers = (auditors.answers, auditors.second_answers)
        require_writable(output, *answers)
        require_distinct([certificate, output, *answers], [labels])
    before = Certificate.read(certificate) if certificate.exists() else None
    groups = promised.per if before is None else before.terms.groups or None
    with _tables(labels, auditors, groups) if labels else _project(config, question, auditors, groups) as source:
        if before is None:
            document = Certificate(terms=promised.terms(source.second), started=_now(), labels=source.labels)
        else:
            promised.require_same(before.terms, certificate)
            document = before
            now, then = ({*zip(each.items, each.labels, strict=True)} for each in (source.labels, document.labels))
            if now != then:
                show.warning(
                    f"the labels have changed since {document.started}; the certificate is about those of then"
                )
        if document.terms.second and not source.second:
            raise BadSettings("certify: this audit has a second auditor; expected --second-answers, or --second")
        document = document.with_answers(*source.answers(document))
        document = _drawn(document.changed(auditors=_named(before or document, auditors)), batch, budget)
        document = document.changed(findings=tuple(document.found()), statement=statement(document))
        if before is None and certificate.exists():
            raise Busy(
                f"{certificate} was written meanwhile by another `hitl certify`; repeat the command to go on with it"
            )
        document.write(certificate)
        waiting = document.waiting()
        if output is not None:
            files.write_corrected(output, document)
        following = source.ask(*waiting) if any(waiting) else []
    state = document.audit.state
    if state == "open" and not any(waiting):
        following = ["the budget is spent; raise --budget to go on"]
    unknown = files.other_answers(document)
    if unknown:
        show.warning(f"answers that are no label of the table count as wrong: {', '.join(unknown[:5])}")
    data, ahead = in_brief(document)
    data |= {"findings": [finding.model_dump() for finding in document.findings]}
    data |= {"waiting": dict(zip(("first", "second"), waiting, strict=True))}
    show.result(data, [*document.statement, *show.wrote([certificate, output]), *ahead, *following], as_json)
    raise typer.Exit(EXIT[state])


def _named(before: Certificate, now: Auditors) -> tuple[str, str]:
    """Return the names of the first and the second auditors: those now, after others who have given answers."""

    def joined(old: str, new: str, given: bool) -> str:
        names = [*(old.split(", ") if given or not new else []), new]
        return ", ".join(dict.fromkeys(filter(None, names)))

    first = any(answer.first for answer in before.answers)
    second = any(answer.second for answer in before.answers)
    return joined(before.auditors[0], now.by, first), joined(before.auditors[1], now.second, second)


def in_brief(document: Certificate) -> tuple[dict[str, Any], list[str]]:
    """Return state, statement and forecast for --json, and the forecast in words (before 50 audits there is none)."""
    expected = document.audit.forecast()
    data = {"state": document.audit.state, "statement": document.statement, "forecast": expected}
    if expected is None:
        return data, []
    middle, low, high = expected
    return data, [f"about {middle:,} more audits will prove it (80 % interval {low:,} to {high:,})"]


def _replayed(
    labels: Path | None, truth: Path, promised: Promised, batch: int, budget: int | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from hitl.certificates import files
    from hitl.certificates.replayed import in_words, replayed

    if labels is None:
        raise BadSettings("--replay: expected a table of labels")
    audited, _ = files.read_labels(labels, promised.per)
    known, _ = files.read_labels(truth)
    promise = promised.terms(False).promise
    right = dict(zip(known.items, known.labels, strict=True))
    result = replayed(audited, right, promise, REPLAYS, batch, budget)
    show.result(asdict(result), in_words(result, promise), as_json)


def _drawn(document: Certificate, batch: int, budget: int | None) -> Certificate:
    """Return the certificate with the next items drawn, if it waits for no answer and is still open."""
    if any(document.waiting()) or document.audit.state != "open":
        return document
    count = batch if budget is None else min(batch, budget - len(document.answers))
    return document.with_batch(count, _now()) if count > 0 else document


@contextmanager
def _tables(labels: Path, auditors: Auditors, groups: str | None) -> Iterator[_Source]:
    from hitl.certificates import files

    audited, shown = files.read_labels(labels, groups)
    first, second = auditors.answers, auditors.second_answers

    def answers(document: Certificate) -> tuple[dict[str, str], dict[str, str]]:
        return files.read_answers(first, document), files.read_answers(second, document) if second else {}

    def ask(items: list[str], again: list[str]) -> list[str]:
        where = []
        for path, wanted in ((first, items), (second, again)):
            if path is not None and wanted:
                files.write_questions(path, wanted, shown)
                where.append(f"{show.counted(len(wanted), 'item')} in {path}")
        return [f"next: fill in the column answer of {' and of '.join(where)}, then run this again"]

    yield _Source(audited, second is not None, answers, ask)


@contextmanager
def _project(config: Path, question: str | None, auditors: Auditors, groups: str | None) -> Iterator[_Source]:
    from hitl.certificates.certificate import UNKNOWN
    from hitl.certificates.in_project import AuditedProject
    from hitl.project import stored

    refuse(["second-answers"] if auditors.second_answers else [], "{}: only with a table of labels; expected --second")
    if not auditors.by:
        raise BadSettings("certify: expected --by, the annotator who audits, or a table of labels")
    with stored(config) as (settings, store):
        project = AuditedProject.of(settings, store, question, groups)
        for name in filter(None, (auditors.by, auditors.second)):
            project.require_known(name)

        def answers(document: Certificate) -> tuple[dict[str, str], dict[str, str]]:
            second = project.answers_of(auditors.second) if auditors.second else {}
            gone = project.gone(document.labels.items)
            lost, lost_second = (dict.fromkeys(gone.intersection(items), UNKNOWN) for items in document.waiting())
            if lost or lost_second:
                few = ", ".join(sorted(lost | lost_second)[:5])
                show.warning(f"drawn items that are no longer in the project count as wrong: {few}")
            first = project.answers_of(auditors.by)
            project.require_same_names(document.labels.labels, (*first.values(), *second.values()))
            return lost | first, lost_second | second

        def ask(items: list[str], again: list[str]) -> list[str]:
            lines = []
            for name, wanted in ((auditors.by, items), (auditors.second, again)):
                if wanted:
                    project.send(wanted, name)
                    lines.append(f"next: `hitl run` asks {name} about {show.counted(len(wanted), 'item')}")
            return [*lines, "once they are answered: `hitl run`, then this again"]

        yield _Source(project.labels, bool(auditors.second), answers, ask)


def verify(
    certificate: Annotated[Path, typer.Argument(help="Certificate of `hitl certify`.")],
    labels: Annotated[Path, typer.Argument(help="Table of labels as it is now: item, label.")],
    as_json: Json = False,
) -> None:
    """Check a certificate: draw its items again, count again, and compare the labels with the certified ones.

    It needs nothing but the two files. Exit with 1 if the promise is not proven, or if labels are not those certified.
    """
    from hitl.certificates.certificate import Certificate
    from hitl.certificates.statement import compare, statement
    from hitl.errors import BadTable
    from hitl.tables.read import read_labels

    document = Certificate.read(certificate)
    lines = list(statement(document))
    if (*lines, *document.found()) != (*document.statement, *document.findings):
        raise BadTable(
            f"{certificate}: its statement and findings are not what its draws and answers prove; it was changed"
        )
    given = read_labels(labels)
    difference = compare(document, given)
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
        lines.append(f"all {show.counted(len(given), 'label')} are as certified")
    state = document.audit.state
    data = {"state": state, "same": difference.same, "statement": document.statement, "changed": difference.changed}
    data |= {name: getattr(difference, name) for name in ("uncorrected", "missing", "added")}
    show.result(data, lines, as_json)
    raise typer.Exit(0 if state == "proven" and difference.same else 1)


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
