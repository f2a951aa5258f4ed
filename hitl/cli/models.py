"""Define `hitl models`: accuracy of annotators and models, alone and together, for files and for a project."""

from __future__ import annotations

import math
from dataclasses import asdict
from operator import methodcaller
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.cli.options import Json, Output, SavedConsensus, examples, grouped
from hitl.cli.profiles import UNKNOWN, Profiler, figure, percent, profile, within

if TYPE_CHECKING:
    import pandas as pd

    from hitl.consensus import Consensus
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
    consensus: SavedConsensus = None,
    output: Output = None,
    rows: Annotated[int, typer.Option(help="How many classes to show, those where annotators add most.", min=1)] = 12,
    as_json: Json = False,
) -> None:
    """When annotators and models together help: who is right where, who errs with whom, what needs no annotator."""
    profile(
        Profiler("models", _fit, methodcaller("frame"), _data, _show, needs_models=True),
        given,
        consensus,
        output,
        rows,
        as_json,
    )


def _fit(evidence: Evidence, consensus: Consensus) -> ModelProfile:
    from hitl.models.analysis.model_profile import ModelProfiler

    return ModelProfiler().fit(evidence, consensus)


def _data(profiled: ModelProfile) -> dict[str, Any]:
    return {
        "models": profiled.models,
        "temperatures": dict(profiled.temperatures),
        "items": profiled.items,
        "labeled": profiled.labeled,
        "spoken": profiled.spoken,
        "expected": _account(profiled.expected),
        "measured": None if profiled.measured is None else _account(profiled.measured),
    }


def _account(account: Account) -> dict[str, Any]:
    data: dict[str, Any] = {"items": account.items, "bound": asdict(account.bound), "error": dict(account.error)}
    return data | {name: getattr(account, name).to_dict("records") for name in TABLES}


def _show(question: str, profiled: ModelProfile, rows: int) -> None:
    """Print accuracies, items that can skip annotators, and dependence of errors."""
    account, title = profiled.best, f": {question}" if question else ""
    if profiled.measured is not None:
        how = "measured on items of known truth, each judged by fits that did not see it"
    else:
        how = "expected by the consensus, which believes itself; known truth (--truth, or `hitl gold`) measures it"
    show.line(f"{account.items:,} items with a label and a model, {how}")
    few = len(account.classes) > rows
    note = f"; the {rows} of {len(account.classes)} classes where annotators add most" if few else ""
    header: tuple[str, ...] = ("", "items", "model", "annotators", "both", "annotators add")
    show.table(f"Accuracy{title} (95 %){note}", header, _accuracies(account, rows), [""])
    show.line(_bound(account, measured=profiled.measured is not None))
    show.line(_calibration(profiled, account))
    header = ("target", "by", "can skip annotators", "sure from", "claimed", "right of these", "right of all")
    show.table(f"Items that need no annotator{title}", header, _skips(account), ["target"])
    header = ("", "items", "bits", "by chance", "p", "bits, class not given")
    show.table(f"What one still says of the other, given the class{title}", header, _dependence(account), [""])


def _accuracies(account: Account, most: int) -> list[tuple[str, ...]]:
    rows = [("all items", *_accuracy(account.overall.iloc[0]))]
    classes = account.classes.sort_values("people_add", ascending=False, kind="stable")[:most]
    rows += [(f"class {row['class']}", *_accuracy(row)) for _, row in classes.iterrows()]
    for _, row in account.confidence.iterrows():
        rows.append((f"sure {_sure(row['from'])}–{_sure(row['to'])} %", *_accuracy(row)))
    return rows


def _accuracy(row: pd.Series[Any]) -> tuple[str, ...]:
    added = f"{_points(row['people_add'])} ({_points(row['people_add_low'])} to {_points(row['people_add_high'])})"
    shares = (within(row[who], row[f"{who}_low"], row[f"{who}_high"]) for who in ("model", "people", "both"))
    return (f"{row['items']:,.0f}", *shares, added if math.isfinite(row["people_add"]) else UNKNOWN)


def _bound(account: Account, *, measured: bool) -> str:
    bound = account.bound
    return (
        f"Confidence ratios (Theorem 1): the P+L of both is right in at least {percent(bound.bound)} "
        f"({percent(bound.tighter)} against the runner-up alone); "
        f"{'measured' if measured else 'expected'}: {percent(bound.accuracy)}. "
        f"The true class outweighs all others for the model in {percent(bound.model_above_one)}, for annotators in "
        f"{percent(bound.people_above_one)}"
    )


def _calibration(profiled: ModelProfile, account: Account) -> str:
    parts = [
        f"{name} {percent(account.error[name])}"
        + (f" (temperature {profiled.temperatures[name]:.2f})" if name in profiled.temperatures else "")
        for name in profiled.models
    ]
    after = percent(account.error["calibrated"])
    return f"Calibration error: {', '.join(parts)}; calibrated {after}"


def _skips(account: Account) -> list[tuple[str, ...]]:
    return [
        (
            percent(row["target"]),
            row["by"],
            f"{row['items']:,} ({percent(row['share'])})",
            percent(row["confidence"]),
            percent(row["claimed"]),
            within(row["accuracy"], row["low"], row["high"]),
            percent(row["overall"]),
        )
        for row in account.skips.to_dict("records")
    ]


def _dependence(account: Account) -> list[tuple[str, ...]]:
    return [
        (
            f"{row['first']}, {row['second']}",
            f"{row['items']:,}",
            *(figure(row[name], ".3f") for name in ("bits", "chance", "p_value")),
            figure(row["together"]),
        )
        for row in account.dependence.to_dict("records")
    ]


def _sure(share: float) -> str:
    """Format a confidence in %, with enough digits to tell it from 100."""
    digits = next((digits for digits in (1, 2, 3) if round(share * 100, digits) < 100), 3)
    return "100" if round(share * 100, digits) >= 100 else f"{share * 100:.{digits}f}"


def _points(share: float) -> str:
    """Format percentage points with a sign; minus zero is zero."""
    return figure(round(share * 100, 1) + 0.0, "+.1f")
