"""Define `hitl rank`: a leaderboard from comparisons, how far it is known, and which pairs to compare next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import Json, Output, opt
from hitl.formatting import listed

if TYPE_CHECKING:
    import pandas as pd

    from hitl.models.preferences.comparisons import Comparisons
    from hitl.models.preferences.davidson import Ranking

PAIRS = 20
SEED = 0


def rank(
    comparisons: Annotated[
        Path,
        typer.Argument(help="Table of comparisons (left, right, winner, annotator) or rankings (ranking, annotator)."),
    ],
    output: Output = None,
    annotators_output: Annotated[
        Path | None,
        opt("Table of annotators to write: annotator, comparisons, reliability.", "--annotators-output"),
    ] = None,
    next_pairs: Annotated[
        int | None, opt(f"Show this many pairs to compare next; with --plan {PAIRS} by default.", "--next", min=1)
    ] = None,
    plan: Annotated[
        Path | None, opt("Table of pairs to write, in order of choice: left, right, winner (empty), annotator, gain.")
    ] = None,
    per_annotator: Annotated[
        int | None, opt("Most pairs to ask an annotator; default: twice an even share.", min=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Rank items by comparisons: strengths with intervals, and which pairs to compare next.

    A winner is the name of an item, left, right or tie. Of several annotators, those who guess count less.
    """
    import pyarrow as pa

    from hitl.models.preferences.comparisons import NAMES, Comparisons
    from hitl.models.preferences.davidson import Davidson
    from hitl.tables.limits import require_memory
    from hitl.tables.read import read_table
    from hitl.tables.write import require_writable, write_table

    require_writable(output, annotators_output, plan, read=[comparisons])
    given = Comparisons.from_table(read_table(comparisons, NAMES), str(comparisons))
    size = 100 * (len(given.items) + len(given.annotators)) ** 2  # of the Hessian, its inverse, and products
    require_memory(comparisons, size, instead="rank fewer items, or comparisons by fewer annotators")
    ranking = Davidson().fit(given)
    if not ranking.converged:
        show.warning("the fit stopped before it converged; strengths may still change")
    groups = given.groups()
    if len(groups) > 1:
        names = "; ".join(f"{{{listed(group)}}}" for group in groups[:4]) + ("; ..." if len(groups) > 4 else "")
        show.warning(
            f"no comparison connects these {len(groups)} groups of items: {names}. How they rank against each other is "
            "a guess, as the intervals say. Compare items of different groups: `--next` lists such pairs"
        )
    board, people = leaderboard(given, ranking), annotators(given, ranking)
    wanted = next_pairs or (PAIRS if plan else 0)
    pairs = planned(given, ranking, wanted, per_annotator)
    for path, table in ((output, board), (annotators_output, people), (plan, pairs)):
        if path is not None:
            write_table(path, pa.Table.from_pandas(table, preserve_index=False))
    shown = board[["rank", "item", "strength", "low", "high", "rank_low", "rank_high", "best", "comparisons"]]
    lines: list[Any] = [show.frame("Leaderboard with 95 % intervals", shown)]
    if len(people) > 1:
        lines.append(show.frame("Annotators: the chance that an answer is no guess", people))
    if len(pairs):
        lines.append(show.frame("Pairs to compare next", _without_missing(pairs.drop(columns="winner"))))
    if len(pairs) < wanted:
        why = "a plan asks each annotator about a pair once, and about --per-annotator pairs at most"
        lines.append(f"Only {len(pairs)} of {wanted} pairs: {why}.")
    lines += show.wrote([output, annotators_output, plan])
    tables = {"leaderboard": board, "annotators": people, "next": pairs}
    data = {name: _without_missing(table).to_dict("records") for name, table in tables.items()}
    show.result({**data, "groups": groups}, lines, as_json)


def leaderboard(given: Comparisons, ranking: Ranking) -> pd.DataFrame:
    """Return a row per item, the strongest first. `wins`: chance to win against an item of average strength."""
    import numpy as np
    import pandas as pd

    low, high = ranking.interval()
    best, ranks = ranking.ranks(np.random.default_rng(SEED))
    table = pd.DataFrame({"item": given.items, "strength": ranking.strengths, "low": low, "high": high})
    table["wins"], table["wins_low"], table["wins_high"] = map(ranking.wins, (ranking.strengths, low, high))
    table["rank_low"], table["rank_high"], table["best"], table["comparisons"] = *ranks, best, given.counts
    table = table.iloc[ranking.order]
    table.insert(0, "rank", range(1, len(table) + 1))
    return table


def annotators(given: Comparisons, ranking: Ranking) -> pd.DataFrame:
    """Return a row per annotator, the least reliable first. Reliability is empty if there is one annotator only."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame({"annotator": given.annotators, "comparisons": np.bincount(given.annotator)})
    table["reliability"] = ranking.reliability if len(table) > 1 else np.nan
    return table.sort_values("reliability", kind="stable")


def planned(given: Comparisons, ranking: Ranking, count: int, per_annotator: int | None) -> pd.DataFrame:
    """Return pairs to compare next.

    Nobody is asked about a pair again, unless annotators already compare pairs repeatedly: two models on many prompts.
    """
    import numpy as np
    import pandas as pd

    from hitl.active.acquisition.pairs import next_pairs
    from hitl.annotations import ANONYMOUS

    who = [None if name == ANONYMOUS else name for name in given.annotators]
    left, right = np.sort([given.left, given.right], axis=0)
    rows = zip(*(codes.tolist() for codes in (given.annotator, left, right)), strict=True)
    named = [row for row in rows if who[row[0]] is not None]
    asked = set(named) if len(set(named)) == len(named) else set()
    chosen = next_pairs(ranking, count, per_annotator or -(-2 * count // len(who)), asked)
    swapped = np.random.default_rng(SEED).random(len(chosen)) < 0.5  # neither side gets the names that sort first
    names = [
        [given.items[one] for one in ((pair.right, pair.left) if swap else (pair.left, pair.right))]
        for pair, swap in zip(chosen, swapped, strict=True)
    ]
    cells = [[*pair, None, who[one.annotator], one.gain] for pair, one in zip(names, chosen, strict=True)]
    table = pd.DataFrame(cells, columns=["left", "right", "winner", "annotator", "gain"])
    return table.astype({"winner": "string", "annotator": "string"})


def _without_missing(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(object).where(table.notna(), None)
