"""Define `hitl estimate`: how many labels are right, and how frequent each class is, from a few known items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import Json, Output, opt, refuse, share
from hitl.errors import BadSettings, BadTable

if TYPE_CHECKING:
    from hitl.annotations import Floats


CHANCE = "chance"
"""Column with the chance with which an item was drawn."""


def estimate(
    labels: Annotated[Path, typer.Argument(help="Table of labels: item, label, confidence, p_<class>.")],
    truth: Annotated[
        Path | None,
        opt("Table of items drawn at random whose answer is known: item, label; chance, if it is of --draw."),
    ] = None,
    draw: Annotated[
        int | None, opt("Draw this many items instead, at least 100, half of them by doubt, into --output.", min=100)
    ] = None,
    output: Output = None,
    seed: Annotated[int | None, opt("With --draw: number that determines the draw; default: random.", min=0)] = None,
    per: Annotated[
        str | None, opt("Estimate it for each class too (label), or for each value of another column.")
    ] = None,
    other: Annotated[
        Path | None, opt("Other labels of the same items, as of another model: how much more often is LABELS right?")
    ] = None,
    confidence: Annotated[float | None, share("Confidence of the intervals; default 95%.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate from a few known items how many labels are right, and how frequent each class is.

    The known items must be drawn at random, evenly or with `--draw`. Beliefs about all other items make the intervals
    narrower, and never wrong.
    """
    import pandas as pd

    from hitl.active.guarantees.intervals import FEW
    from hitl.certificates.files import read_labels
    from hitl.certificates.shares import difference, estimated
    from hitl.tables.columns import numbers_of

    if draw is not None or truth is None:
        unused = {"per": per, "other": other, "confidence": confidence}
        refuse([name for name, value in unused.items() if value is not None], "{}: only with --truth")
        _draw(labels, truth, draw, output, seed)
        return
    refuse([name for name, value in (("output", output), ("seed", seed)) if value is not None], "{}: only with --draw")
    audited, _ = read_labels(labels, per)
    known, table = read_labels(truth)
    chances = None
    if CHANCE in table.column_names:
        numbers = numbers_of(table.column(CHANCE), f"{truth}: column {CHANCE}")
        if not ((numbers > 0) & (numbers <= 1)).all():
            raise BadTable(f"{truth}: column {CHANCE}: expected the numbers above 0 and up to 1 that --draw wrote")
        chances = dict(zip(known.items, numbers.tolist(), strict=True))
        if other is not None:
            raise BadSettings("--other: expected items that were drawn evenly, without --draw")
    right = dict(zip(known.items, known.labels, strict=True))
    sure = 0.95 if confidence is None else confidence
    found = estimated(audited, right, _probabilities(labels), sure, chances)
    if not found:
        few = f"fewer than {FEW} of its items are" if chances else "none of its items is"
        raise BadTable(f"{truth}: {few} in {labels}; expected the same names of items")
    if other is not None:
        found.append((f"right in {labels}, less in {other}", difference(audited, read_labels(other)[0], right, sure)))
    rows = [
        {"share": what, "known": one.known, "estimate": one.share, "low": one.low, "high": one.high}
        for what, one in found
    ]
    lines: list[Any] = [show.frame(f"Shares with {100 * sure:g} % intervals", pd.DataFrame(rows), len(rows))]
    if chances and per is not None:
        lines.append(f"Groups of fewer than {FEW} known items are left out.")
    lines.append("They hold if the known items were drawn at random, and the labels were combined without them.")
    show.result({"confidence": sure, "shares": rows}, lines, as_json)


def _draw(labels: Path, truth: Path | None, many: int | None, output: Path | None, seed: int | None) -> None:
    """Write a table of items drawn by chances, with an empty column for their right labels."""
    import numpy as np
    import pyarrow as pa

    from hitl.active.guarantees.intervals import chances, draw
    from hitl.certificates.files import read_labels
    from hitl.tables.write import require_writable, write_table

    if many is None:
        raise BadSettings("estimate: expected --truth, a table of known items, or --draw, to draw items to label")
    if truth is not None or output is None:
        raise BadSettings("--draw: expected --output, a table to write, and no --truth")
    require_writable(output, read=[labels])
    given, shown = read_labels(labels)
    if many >= len(given.items):
        raise BadSettings(f"--draw {many}: {labels} has {len(given.items):,} items; expected fewer to draw")
    chance_n = chances(np.array(given.doubt), many)
    rows = draw(chance_n, np.random.default_rng(seed))
    table = shown.take(pa.array(rows)).replace_schema_metadata(None)
    table = table.add_column(1, "label", pa.nulls(len(rows), pa.string()))
    write_table(output, table.append_column(CHANCE, pa.array(chance_n[rows])))
    show.line(f"wrote {output}\nnext: fill in its column label, then `hitl estimate {labels} --truth {output}`")


def _probabilities(labels: Path) -> dict[str, Floats]:
    """Return class -> (N,) its probabilities, of the columns p_<class>. Raises BadTable if one is missing."""
    import numpy as np

    from hitl.tables.columns import numbers_of
    from hitl.tables.read import place_in, read_table

    table = read_table(labels, ["item", "label"])
    names = [name for name in table.column_names if name.startswith("p_")]
    found = {name[2:]: numbers_of(table.column(name), f"{labels}: column {name}") for name in names}
    for name, p_n in found.items():
        if not np.isfinite(p_n).all():
            row = int(np.isfinite(p_n).argmin())
            raise BadTable(f"{place_in(table)(row)}: no probability in column p_{name}; expected one in each row")
    return found
