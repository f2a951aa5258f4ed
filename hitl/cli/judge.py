"""Define `hitl judge`: how right automatic judges are, what a panel of them is worth, and how many items pass."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import HERE, Config, Json, Output, grouped, names, opt, share
from hitl.errors import BadSettings
from hitl.formatting import listed

if TYPE_CHECKING:
    from hitl.active.guarantees.intervals import Interval
    from hitl.active.guarantees.panel import Panel
    from hitl.evidence import Evidence

NEXT = 50
PASSES = ("pass", "passed", "yes", "true", "correct", "right", "good", "ok", "safe", "1")
"""Names of classes that pass, if one is among the classes and --pass names none."""

REQUIRE = re.compile(r"\s*(.+?)\s*(>=|<=)\s*([0-9.]+)\s*(%?)\s*")
PASS_RATE, WORTH = "pass_rate", "worth"
EXIT = {"met": 0, "not met": 1, "open": 3}
"""State of --require -> exit code, as of `hitl certify`."""


@grouped
def judge(
    given: Given,
    passing: Annotated[
        str | None,
        opt('Comma-separated classes that pass ("a, b" is one); default: the class named yes, pass, ...', "--pass"),
    ] = None,
    require: Annotated[
        str | None, opt('What must hold, as "pass_rate >= 0.9", "worth >= 2", or the name of a judge and a share.')
    ] = None,
    confidence: Annotated[float | None, share("Confidence of the intervals; default 95%.")] = None,
    following: Annotated[int, opt("Number of items to list that people should read next.", "--next", min=0)] = NEXT,
    output: Output = None,
    page: Annotated[Path | None, opt("HTML page to write.")] = None,
    as_json: Json = False,
    config: Config = HERE,
) -> None:
    """Show how right judges are, how many independent ones they are worth, and how many items pass.

    Judges are models, and annotators named by --judge or crew.judges. People's answers are the reference: read the
    listed items in order. With --require, exit with 0 if it holds, 1 if it does not, 3 if too little is known.
    """
    from functools import partial

    import pandas as pd
    import pyarrow as pa

    from hitl.active.guarantees.panel import judged
    from hitl.models.combine import fit
    from hitl.models.registry import chosen
    from hitl.tables.write import require_writable, write_table

    wanted = None if require is None else Requirement.read(require)
    require_writable(output, others=[page], read=given.files)
    basis, evidence = _evidence(given, config)
    classes = [str(name) for name in evidence.annotations.classes]
    passes = _passing(classes, passing)
    method = partial(fit, chosen(given.method or "default", {}, given.paper))
    sure = 0.95 if confidence is None else confidence
    with show.progress(as_json):
        panel = judged(evidence, [classes.index(name) for name in passes], method, following, sure)
    rows = [{"judge": one.name, "answers": one.answers} | _interval("right", one.right) for one in panel.judges]
    judges, reading = pd.DataFrame(rows), _next(panel, evidence)
    shares = {one.name: one.right for one in panel.judges}
    if wanted is not None and wanted.name in {PASS_RATE, WORTH} & {*shares}:
        raise BadSettings(f"--require {wanted.name}: a judge has this name too; rename the judge")
    shares |= {PASS_RATE: panel.passing, WORTH: panel.worth}
    state = None if wanted is None else wanted.state(shares)
    lines: list[Any] = [basis, *_summary(panel, passes, sure)]
    lines.append(show.frame(f"Judges: how often they are right, with {100 * sure:g} % intervals", judges, len(judges)))
    if len(reading):
        lines.append(show.frame("Items that people should read next", reading, min(10, following)))
    lines += [] if state is None else [f"{require}: {state}"]
    if output is not None:
        write_table(output, pa.Table.from_pandas(reading, preserve_index=False))
    if page is not None:
        from hitl.report.panel import write_page

        write_page(page, panel, reading, [basis, *_summary(panel, passes, sure)], state and f"{require}: {state}")
    lines += show.wrote([output, page])
    data = {"passing": passes, "read": panel.read, "drawn": panel.drawn, "confidence": sure, "losses": panel.losses}
    data |= {PASS_RATE: panel.passing and asdict(panel.passing), WORTH: panel.worth and asdict(panel.worth)}
    data |= {"judges": judges.to_dict("records"), "next": reading.to_dict("records")}
    data |= {} if state is None else {"require": require, "state": state}
    show.result(data, lines, as_json)
    raise typer.Exit(0 if state is None else EXIT[state])


@dataclass(frozen=True)
class Requirement:
    """A bound that a figure must keep, as "pass_rate >= 0.9"."""

    name: str
    sign: str
    bound: float

    @classmethod
    def read(cls, text: str) -> Requirement:
        """Read a requirement. Raises BadSettings."""
        found = REQUIRE.fullmatch(text)
        try:
            assert found is not None
            return cls(found[1], found[2], float(found[3]) / (100 if found[4] else 1))
        except (AssertionError, ValueError):
            raise BadSettings(f'--require {text!r}: expected for instance "pass_rate >= 0.9"') from None

    def state(self, figures: dict[str, Interval | None]) -> str:
        """Return "met" or "not met" if the whole interval says so, otherwise "open". Raises BadSettings."""
        if self.name not in figures:
            raise BadSettings(f"--require {self.name}: expected one of {listed([*figures])}")
        found = figures[self.name]
        if found is None:
            return "open"
        low, high = (found.low, found.high) if self.sign == ">=" else (-found.high, -found.low)
        bound = self.bound if self.sign == ">=" else -self.bound
        return "met" if low >= bound else "not met" if high < bound else "open"


def _evidence(given: Given, config: Path) -> tuple[str, Evidence]:
    """Return where the evidence comes from, in words, and the evidence: of the files, or of a question of a project."""
    from hitl.project import stored, stored_evidence, stored_questions

    if given.annotations is not None:
        evidence = given.evidence()
        return str(evidence), evidence
    replace(given, question=None).need_project("judge", config)
    with stored(config) as (settings, store):
        known = stored_evidence(settings, store, stored_questions(settings, store))
    name = given.question or next(iter(known))
    if name not in known or (given.question is None and len(known) > 1):
        what = f"--question {given.question}: unknown" if given.question else "judge: the project has several questions"
        raise BadSettings(f"{what}; expected --question with one of {listed([*known])}")
    return f"{settings.name}, {name}: {known[name]}", known[name]


def _passing(classes: list[str], given: str | None) -> list[str]:
    wanted = names(given) or [name for name in classes if name.casefold() in PASSES]
    unknown = [name for name in wanted if name not in classes]
    if unknown or (given is None and len(wanted) != 1):
        what = f"--pass {unknown[0]}: no such class" if unknown else "judge: which classes pass?"
        raise BadSettings(f"{what}; expected --pass with some of {listed(classes)}")
    return list(wanted)


def _summary(panel: Panel, passes: list[str], sure: float) -> list[str]:
    """Return the sentences that answer: how many pass, what is the panel worth, what does it rest on."""
    if panel.passing is None:
        return ["Nobody has read any item, so nothing is known about the judges. Let people read those listed below."]
    rests = f"on {show.counted(panel.drawn, 'item')} that people read and that a random order begins with"
    if not panel.drawn:
        rests = (
            f"on the {show.counted(panel.read, 'item')} that people chose to read, and hold only if these are like all "
            "others; to be sure, let people read those listed below"
        )
    passing = panel.passing
    pass_rate = show.within(passing.share, passing.low, passing.high)
    lines = [f"Pass ({', '.join(passes)}): {pass_rate} of {len(panel.answer_nk):,} items"]
    if panel.worth is not None:
        worth = f"{panel.worth.share:.1f} independent ones ({panel.worth.low:.1f}–{panel.worth.high:.1f})"
        lines.append(f"The {show.counted(len(panel.judges), 'judge')} are worth {worth}, because they err together.")
    if panel.losses:
        (role, loss), (other, more) = sorted(panel.losses.items(), key=lambda each: each[1])
        lines.append(
            f"Counted as {role}, judges predict what people said best (log loss {loss:.2f}; as {other} {more:.2f})."
        )
    return [*lines, f"The {100 * sure:g} % intervals rest {rests}."]


def _interval(name: str, found: Interval | None) -> dict[str, Any]:
    if found is None:
        return {name: None, "low": None, "high": None, "read": 0}
    return {name: found.share, "low": found.low, "high": found.high, "read": found.known}


def _next(panel: Panel, evidence: Evidence) -> Any:
    """Return the table of items to read next, with the judges' answers."""
    import pandas as pd

    labels = evidence.annotations
    rows = []
    for one in panel.next:
        answers: dict[str, Any] = {
            judge.name: None if code < 0 else str(labels.classes[code])
            for judge, code in zip(panel.judges, panel.answer_nk[one.item], strict=True)
        }
        rows.append({"item": labels.items[one.item], "why": one.why, "doubt": one.doubt, **answers})
    return pd.DataFrame(rows, columns=["item", "why", "doubt", *(judge.name for judge in panel.judges)])
