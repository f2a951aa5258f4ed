"""Define `hitl estimate`: how many labels are right, and how frequent each class is, from a few known items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import Json, opt, share
from hitl.errors import BadTable

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.annotations import Floats


def estimate(
    labels: Annotated[Path, typer.Argument(help="Table of labels: item, label, confidence, p_<class>.")],
    truth: Annotated[Path, opt("Table of items drawn at random whose answer is known: item, label.")],
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

    The known items must be drawn at random. Beliefs about all other items make the intervals narrower, and never wrong.
    """
    import pandas as pd

    from hitl.certificates.files import read_labels
    from hitl.certificates.shares import difference, estimated
    from hitl.tables.read import read_table

    audited, _ = read_labels(labels, per)
    known, _ = read_labels(truth)
    right = dict(zip(known.items, known.labels, strict=True))
    sure = 0.95 if confidence is None else confidence
    found = estimated(audited, right, _probabilities(read_table(labels, ["item", "label"])), sure)
    if not found:
        raise BadTable(f"{truth}: none of its items is in {labels}; expected the same names of items")
    if other is not None:
        found.append((f"right in {labels}, less in {other}", difference(audited, read_labels(other)[0], right, sure)))
    rows = [
        {"share": what, "known": one.known, "estimate": one.share, "low": one.low, "high": one.high}
        for what, one in found
    ]
    lines: list[Any] = [show.frame(f"Shares with {100 * sure:g} % intervals", pd.DataFrame(rows), len(rows))]
    lines.append("They hold if the known items were drawn at random, and the labels were combined without them.")
    show.result({"confidence": sure, "shares": rows}, lines, as_json)


def _probabilities(table: pa.Table) -> dict[str, Floats]:
    """Return class -> (N,) its probabilities, of the columns p_<class>."""
    from hitl.tables.columns import numbers_of

    return {
        name[2:]: numbers_of(table.column(name), f"column {name}")
        for name in table.column_names
        if name.startswith("p_")
    }
