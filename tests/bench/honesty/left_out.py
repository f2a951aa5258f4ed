"""The one constant that was chosen on the sets, chosen again without each group of them, and scored on that group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from hitl.models.dependence.design_effect import UNTRACED_RHO
from tests.bench.honesty.crowds import REAL
from tests.bench.honesty.scored import COLUMNS, TEMPERED, Row

NAMES = ("rho", "log loss", "log loss as set", "ECE", "ECE as set")


def by_group(rows: Sequence[Row], figure: str) -> pd.DataFrame:
    """Means of groups (rows) over sets and thinnings, for each rho of the grid and as it is set ("default")."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    there = frame[(frame["kind"] == REAL) & frame["method"].isin([*TEMPERED, "default"])]
    cells = there.groupby(["group", "set", "labels", "method"], sort=False)[figure].mean()  # over seeds
    table: pd.DataFrame = cells.groupby(["group", "method"], sort=False).mean().unstack("method")
    return table.rename(columns=TEMPERED)


def chosen_without(loss: pd.DataFrame) -> pd.Series[float]:
    """Group -> the rho that has the least log loss in the mean over the other groups."""
    on_grid = loss[list(TEMPERED.values())]
    return pd.Series({group: float(on_grid.drop(index=group).mean().idxmin()) for group in on_grid.index})


def left_out(rows: Sequence[Row]) -> tuple[list[str], dict[str, Any]]:
    """Lines of the table, and its figures; nothing with fewer than two groups."""
    loss, error = by_group(rows, "log loss"), by_group(rows, "ECE")
    if len(loss) < 2:
        return [], {}
    chosen = chosen_without(loss)
    pairs = {
        group: [float(table.loc[group, r]) for table in (loss, error) for r in (rho, "default")]
        for group, rho in chosen.items()
    }
    figures = pd.DataFrame([[chosen[group], *pair] for group, pair in pairs.items()], list(pairs), NAMES)
    lines = ["", "mean over real groups by rho    log loss     ECE"]
    lines += [f"{rho:31.2f}{loss[rho].mean():9.4f}{error[rho].mean():8.4f}" for rho in TEMPERED.values()]
    as_set = f"with {UNTRACED_RHO}"
    lines += ["", f"{'left out':24s}{'rho by the others':>18s}{'log loss':>10s}{as_set:>11s}{'ECE':>9s}{as_set:>11s}"]
    mean = figures.mean()
    for group, row in (*figures.iterrows(), ("mean over groups", mean)):
        rho = "" if row is mean else f"{row['rho']:.2f}"
        lines.append(
            f"{group:24s}{rho:>18s}{row.iloc[1]:10.4f}{row.iloc[2]:11.4f}{row.iloc[3]:9.4f}{row.iloc[4]:11.4f}"
        )
    times = ", ".join(f"{rho:g} for {count}" for rho, count in chosen.value_counts().sort_index().items())
    best = float(loss[list(TEMPERED.values())].mean().idxmin())
    lines.append(f"chosen without one group: {times} of {len(chosen)} groups; with all of them {best:g}")
    return lines, {**figures.T.to_dict(), "mean": mean.to_dict(), "with all": best}
