"""`hitl models`: when human and model together help, for files and for a project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cli import show
from hitl.cli.annotators import plain, stored_results
from hitl.cli.files import judged
from hitl.cli.project import of_question
from hitl.errors import BadEvidence, BadSettings
from hitl.project import opened

if TYPE_CHECKING:
    import pandas as pd

    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.analysis.model_profile import Account, ModelProfile

UNKNOWN = "–"

TABLES = ("overall", "classes", "confidence", "calibration", "deferral", "skips", "dependence")


def of_files(
    evidence: Evidence,
    method: str | None,
    consensus: Path | None,
    output: Path | None,
    rows: int,
    as_json: bool,
    inputs: Sequence[Path],
) -> None:
    """Profile human and model over a table, by a saved consensus or one made here."""
    _require_models(evidence)
    by = judged("models", evidence, method, consensus, output, inputs)
    found = _profile(evidence, by)
    if output is not None:
        _write(found, output)
    if as_json:
        show.as_json(_data(found, by) | {"written": {} if output is None else {"models": str(output)}})
        return
    show.line(f"{evidence!r}, combined by {by.fit.method}")
    _show("", found, rows)
    if output is not None:
        show.line(f"wrote {output}")


def of_project(config: Path, output: Path | None, rows: int, as_json: bool) -> None:
    """Profile human and model in a project, by the consensus of its last cycle where that is still over what is
    stored; questions without a model are left out."""
    from hitl.files import require_writable

    require_writable(output)
    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        from hitl import cycle

        evidence = cycle.stored_evidence(store, settings.name, connector.questions())
        evidence = {name: known for name, known in evidence.items() if known.probabilities}
        if not evidence:
            raise BadEvidence(
                f"project {settings.name!r} has no model's probabilities; in a folder of tables they are "
                "probabilities_<model>.csv, in Label Studio predictions"
            )
        results, of_cycle = stored_results(settings, store, evidence, progress)
    found = {name: _profile(evidence[name], results[name]) for name in evidence}
    written = {}
    if output is not None:
        written = {name: str(of_question(output, name, len(found))) for name in found}
        for name, profile in found.items():
            _write(profile, Path(written[name]))
    if as_json:
        questions = {name: _data(profile, results[name]) for name, profile in found.items()}
        show.as_json({"project": settings.name, "questions": questions, "written": written})
        return
    show.line("judged by the last cycle" if of_cycle else "combined now: something changed since the last cycle")
    for name, profile in found.items():
        _show(name, profile, rows)
    for path in written.values():
        show.line(f"wrote {path}")


def _require_models(evidence: Evidence) -> None:
    if not evidence.probabilities:
        raise BadSettings("models: --probabilities is needed, for instance --probabilities resnet=probs.csv")


def _profile(evidence: Evidence, judged: Consensus) -> ModelProfile:
    from hitl.models.analysis.model_profile import ModelProfiler

    return ModelProfiler().fit(evidence, judged)


def _write(found: ModelProfile, output: Path) -> None:
    import pyarrow as pa

    from hitl.files import write_table

    write_table(output, pa.Table.from_pandas(found.frame(), preserve_index=False))


def _data(found: ModelProfile, consensus: Consensus) -> dict[str, Any]:
    """Everything, as JSON values; what is not known is null."""
    data: dict[str, Any] = plain(
        {
            "method": consensus.fit.method,
            "models": found.models,
            "temperatures": dict(found.temperatures),
            "items": found.items,
            "labeled": found.labeled,
            "spoken": found.spoken,
            "expected": _account(found.expected),
            "measured": None if found.measured is None else _account(found.measured),
        }
    )
    return data


def _account(account: Account) -> dict[str, Any]:
    told: dict[str, Any] = {"items": account.items, "bound": asdict(account.bound), "error": dict(account.error)}
    return told | {name: getattr(account, name).to_dict("records") for name in TABLES}


def _show(question: str, found: ModelProfile, rows: int) -> None:
    """What is right how often, what can skip people, who errs with whom."""
    account, title = found.best, f": {question}" if question else ""
    if found.measured is not None:
        how = "measured on items of known truth, each judged by fits that were not told it"
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
        f"{_percent(row[who])} ({_number(row[f'{who}_low'])}–{_number(row[f'{who}_high'])})"
        for who in ("model", "people", "both")
    )
    return (f"{row['items']:,.0f}", *shares, added if math.isfinite(row["people_add"]) else UNKNOWN)


def _bound(account: Account, *, measured: bool) -> str:
    bound = account.bound
    return (
        f"Confidence ratios (Theorem 1): the P+L of both is right in at least {_percent(bound.bound)} "
        f"({_percent(bound.tighter)} against the runner-up alone); "
        f"{'measured' if measured else 'expected'}: {_percent(bound.accuracy)}. "
        f"The true class outweighs all others for the model in {_percent(bound.model_above_one)}, for people in "
        f"{_percent(bound.people_above_one)}"
    )


def _calibration(found: ModelProfile, account: Account) -> str:
    parts = [
        f"{name} {_percent(account.error[name])}"
        + (f" (temperature {found.temperatures[name]:.2f})" if name in found.temperatures else "")
        for name in found.models
    ]
    after = _percent(account.error["calibrated"])
    return f"Calibration error: {', '.join(parts)}; calibrated {after}"


def _skips(account: Account) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in account.skips.to_dict("records"):
        interval = f" ({_number(row['low'])}–{_number(row['high'])})" if math.isfinite(row["accuracy"]) else ""
        found.append(
            (
                _percent(row["target"]),
                row["by"],
                f"{row['items']:,} ({_percent(row['share'])})",
                _percent(row["confidence"]),
                _percent(row["claimed"]),
                _percent(row["accuracy"]) + interval,
                _percent(row["overall"]),
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


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if math.isfinite(share) else UNKNOWN


def _number(share: float) -> str:
    return f"{share * 100:.1f}" if math.isfinite(share) else UNKNOWN


def _sure(share: float) -> str:
    """A confidence in %, with as many digits as tell it from 100."""
    digits = next((digits for digits in (1, 2, 3) if round(share * 100, digits) < 100), 3)
    return "100" if round(share * 100, digits) >= 100 else f"{share * 100:.{digits}f}"


def _points(share: float) -> str:
    """In points, with its sign; minus zero is zero."""
    return f"{round(share * 100, 1) + 0.0:+.1f}" if math.isfinite(share) else UNKNOWN
