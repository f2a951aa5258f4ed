"""`hitl models`: when annotators and models together help, for files and for a project."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import Consensus, Json, Output, examples, grouped
from hitl.cli.profiles import UNKNOWN, percent, profile

if TYPE_CHECKING:
    import pandas as pd

    from hitl.evidence import Evidence
    from hitl.models.analysis.model_profile import Account, ModelProfile

TABLES = ("overall", "classes", "confidence", "calibration", "deferral", "skips", "dependence")
EXAMPLES = examples(
    "hitl models annotations.csv --probabilities resnet=probs.csv",
    "hitl models annotations.csv -p a=a.csv -p b=b.csv --truth truth.csv --output models.csv",
    "hitl models --json  # inside a project",
)


@grouped
def models(
    given: Given,
    consensus: Consensus = None,
    output: Output = None,
    rows: Annotated[int, typer.Option(help="How many classes to show, those where people add most.", min=1)] = 12,
    as_json: Json = False,
) -> None:
    """When annotators and models together help: who is right where, who errs with whom, what needs no annotator."""
    profile(_Models(), given, consensus, output, rows, as_json)


class _Models:
    command, needs_models = "models", True

    def fit(self, evidence: Evidence, consensus: Any) -> ModelProfile:
        from hitl.models.analysis.model_profile import ModelProfiler

        return ModelProfiler().fit(evidence, consensus)

    def frame(self, found: ModelProfile) -> pd.DataFrame:
        return found.frame()

    def data(self, found: ModelProfile) -> dict[str, Any]:
        return {
            "models": found.models,
            "temperatures": dict(found.temperatures),
            "items": found.items,
            "labeled": found.labeled,
            "spoken": found.spoken,
            "expected": _account(found.expected),
            "measured": None if found.measured is None else _account(found.measured),
        }

    def show(self, question: str, found: ModelProfile, rows: int) -> None:
        _show(question, found, rows)


def _account(account: Account) -> dict[str, Any]:
    data: dict[str, Any] = {"items": account.items, "bound": asdict(account.bound), "error": dict(account.error)}
    return data | {name: getattr(account, name).to_dict("records") for name in TABLES}


def _show(question: str, found: ModelProfile, rows: int) -> None:
    """What is right how often, what can skip people, who errs with whom."""
    account, title = found.best, f": {question}" if question else ""
    if found.measured is not None:
        how = "measured on items of known truth, each judged by fits that did not see it"
    else:
        how = "expected by the consensus, which believes itself; known truth (--truth) measures it"
    show.line(f"{account.items:,} items with a label and a model, {how}")
    few = len(account.classes) > rows
    note = f"; the {rows} of {len(account.classes)} classes where people add most" if few else ""
    header: tuple[str, ...] = ("", "items", "model", "people", "both", "people add")
    _table(f"Accuracy{title} (95 %){note}", header, _accuracies(account, rows))
    show.line(_bound(account, measured=found.measured is not None))
    show.line(_calibration(found, account))
    header = ("target", "by", "can skip people", "sure from", "claimed", "right of these", "right of all")
    _table(f"Items that could skip people{title}", header, _skips(account))
    header = ("", "items", "bits", "by chance", "p", "bits, class not given")
    _table(f"What one still says of the other, given the class{title}", header, _dependence(account))


def _table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def _accuracies(account: Account, rows: int) -> list[tuple[str, ...]]:
    found = [("all items", *_accuracy(account.overall.iloc[0]))]
    classes = account.classes.sort_values("people_add", ascending=False, kind="stable")[:rows]
    found += [(f"class {row['class']}", *_accuracy(row)) for _, row in classes.iterrows()]
    for _, row in account.confidence.iterrows():
        found.append((f"sure {_sure(row['from'])}–{_sure(row['to'])} %", *_accuracy(row)))
    return found


def _accuracy(row: pd.Series[Any]) -> tuple[str, ...]:
    added = f"{_points(row['people_add'])} ({_points(row['people_add_low'])} to {_points(row['people_add_high'])})"
    shares = (
        f"{percent(row[who])} ({_number(row[f'{who}_low'])}–{_number(row[f'{who}_high'])})"
        for who in ("model", "people", "both")
    )
    return (f"{row['items']:,.0f}", *shares, added if math.isfinite(row["people_add"]) else UNKNOWN)


def _bound(account: Account, *, measured: bool) -> str:
    bound = account.bound
    return (
        f"Confidence ratios (Theorem 1): the P+L of both is right in at least {percent(bound.bound)} "
        f"({percent(bound.tighter)} against the runner-up alone); "
        f"{'measured' if measured else 'expected'}: {percent(bound.accuracy)}. "
        f"The true class outweighs all others for the model in {percent(bound.model_above_one)}, for people in "
        f"{percent(bound.people_above_one)}"
    )


def _calibration(found: ModelProfile, account: Account) -> str:
    parts = [
        f"{name} {percent(account.error[name])}"
        + (f" (temperature {found.temperatures[name]:.2f})" if name in found.temperatures else "")
        for name in found.models
    ]
    after = percent(account.error["calibrated"])
    return f"Calibration error: {', '.join(parts)}; calibrated {after}"


def _skips(account: Account) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in account.skips.to_dict("records"):
        interval = f" ({_number(row['low'])}–{_number(row['high'])})" if math.isfinite(row["accuracy"]) else ""
        found.append(
            (
                percent(row["target"]),
                row["by"],
                f"{row['items']:,} ({percent(row['share'])})",
                percent(row["confidence"]),
                percent(row["claimed"]),
                percent(row["accuracy"]) + interval,
                percent(row["overall"]),
            )
        )
    return found


def _dependence(account: Account) -> list[tuple[str, ...]]:
    return [
        (
            f"{row['first']}, {row['second']}",
            f"{row['items']:,}",
            *(f"{row[name]:.3f}" if math.isfinite(row[name]) else UNKNOWN for name in ("bits", "chance", "p_value")),
            f"{row['together']:.2f}" if math.isfinite(row["together"]) else UNKNOWN,
        )
        for row in account.dependence.to_dict("records")
    ]


def _number(share: float) -> str:
    return f"{share * 100:.1f}" if math.isfinite(share) else UNKNOWN


def _sure(share: float) -> str:
    """A confidence in %, with as many digits as tell it from 100."""
    digits = next((digits for digits in (1, 2, 3) if round(share * 100, digits) < 100), 3)
    return "100" if round(share * 100, digits) >= 100 else f"{share * 100:.{digits}f}"


def _points(share: float) -> str:
    """In points, with its sign; minus zero is zero."""
    return f"{round(share * 100, 1) + 0.0:+.1f}" if math.isfinite(share) else UNKNOWN
