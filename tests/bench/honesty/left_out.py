"""The one constant that was chosen on the sets, chosen again without each group of them, and scored on that group."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hitl.models.dependence.design_effect import EXPECTED
from tests.bench.honesty.crowds import REAL
from tests.bench.honesty.scored import TEMPERED


def by_group(frame: pd.DataFrame, figure: str) -> pd.DataFrame:
    """Means of groups (rows) over sets and thinnings, for each rho of the grid and as it is set ("default")."""
    there = frame[(frame["kind"] == REAL) & frame["method"].isin([*TEMPERED, "default"])]
    cells = there.groupby(["group", "set", "labels", "method"], sort=False)[figure].mean()  # over seeds
    table: pd.DataFrame = cells.groupby(["group", "method"], sort=False).mean().unstack("method")
    return table.rename(columns=TEMPERED)


def chosen_without(loss: pd.DataFrame) -> pd.Series[float]:
    """Group -> the rho that has the least log loss in the mean over the other groups."""
    on_grid = loss[list(TEMPERED.values())]
    return pd.Series({group: float(on_grid.drop(index=group).mean().idxmin()) for group in on_grid.index})


def left_out(frame: pd.DataFrame) -> tuple[list[str], dict[str, Any]]:
    """Lines of the table, and its figures; nothing with fewer than two groups."""
    loss, error = by_group(frame, "log loss"), by_group(frame, "ECE")
    if len(loss) < 2:
        return [], {}
    chosen = chosen_without(loss)
    lines = ["", "mean over real groups by rho    log loss     ECE"]
    lines += [f"{rho:31.2f}{loss[rho].mean():9.4f}{error[rho].mean():8.4f}" for rho in TEMPERED.values()]
    lines += [
        "",
        f"{'left out':24s}{'rho by the others':>18s}{'log loss':>10s}{f'with {EXPECTED}':>11s}{'ECE':>9s}"
        f"{f'with {EXPECTED}':>11s}",
    ]
    figures: dict[str, Any] = {}
    for group, rho in chosen.items():
        pairs = [float(table.loc[group, which]) for table in (loss, error) for which in (rho, "default")]
        figures[str(group)] = dict(
            zip(("rho", "log loss", "log loss as set", "ECE", "ECE as set"), (rho, *pairs), strict=True)
        )
        lines.append(_row(str(group), f"{rho:.2f}", pairs))
    means = pd.DataFrame(figures).T.mean()
    figures["mean"] = {name: float(value) for name, value in means.items()}
    lines.append(_row("mean over groups", "", list(means)[1:]))
    times = ", ".join(f"{rho:g} for {count}" for rho, count in chosen.value_counts().sort_index().items())
    best = float(loss[list(TEMPERED.values())].mean().idxmin())
    lines.append(f"chosen without one group: {times} of {len(chosen)} groups; with all of them {best:g}")
    figures["with all"] = best
    return lines, figures


def _row(name: str, rho: str, pairs: list[float]) -> str:
    return f"{name:24s}{rho:>18s}{pairs[0]:10.4f}{pairs[1]:11.4f}{pairs[2]:9.4f}{pairs[3]:11.4f}"
