"""How many comparisons does a ranking take? Chosen pairs beside pairs drawn evenly, in simulated tournaments.

    python -m tests.bench.preferences.rankings [--tournaments 40] [--close 20] [--workers 2] [--save]

A tournament has 20 to 50 items with normal strengths, and thirty annotators, nine of whom nearly always guess. All ways
of asking are fitted by the same model, in batches, until Kendall's tau with the true order reaches 0.9. Strengths have
the standard deviation 2, or 1 in the `close` ones. Evenly drawn pairs are also ranked by evalica's Bradley-Terry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from evalica import Winner, bradley_terry
from scipy.stats import kendalltau

from hitl.active.acquisition import pairs
from hitl.annotations import Floats
from hitl.models.preferences.comparisons import Comparisons
from hitl.models.preferences.davidson import Davidson
from tests.bench import results
from tests.models.preferences.crowds import Tournament

TAU, MOST = 0.9, 20_000
EVENLY = "evenly"
CHOSEN, ALL_CHOSEN = "pairs by order, anybody", "pairs by order, and whom"
WAYS = (EVENLY, CHOSEN, "pairs by determinant, anybody", ALL_CHOSEN, "pairs by determinant, and whom")


def log_determinant(d: Floats, covariance: Floats, w: Floats) -> Floats:
    """Twice the information about the strengths: the other criterion."""
    return np.log1p(w * pairs.differences(covariance))


def needed(job: tuple[int, str, float]) -> dict[str, int]:
    """Return the comparisons until tau, at the granularity of batches; MOST if it is not reached before."""
    seed, way, scale = job
    rng = np.random.default_rng(1_000 + seed)
    people = np.append(rng.uniform(0, 0.2, 9), rng.uniform(0.8, 1, 21))
    game = Tournament.drawn(seed, int(rng.integers(20, 51)), people, scale=scale)
    n, k, found = len(game.strengths), len(people), dict[str, int]()
    asked, seen = set[tuple[int, int, int]](), [*game.random_pairs(n // 2)]
    answers = game.outcomes(*seen)
    while len(answers) < MOST:
        compared = game.comparisons(*seen, answers)
        fit, batch = Davidson().fit(compared), max(10, len(answers) // 25)
        if kendalltau(fit.strengths, game.strengths).statistic >= TAU:
            found.setdefault(way, len(answers))
        if way != EVENLY and found:
            break
        if way == EVENLY:
            if kendalltau(by_evalica(compared), game.strengths).statistic >= TAU:
                found.setdefault("evenly, ranked by evalica", len(answers))
            if len(found) == 2:
                break
            left, right, who = game.random_pairs(batch)
        else:
            to_all = way.endswith("anybody")
            if to_all:  # an annotator of the average reliability, whom nothing is kept from
                average = np.array([fit.reliability.mean()])
                fit = type(fit)(fit.strengths, fit.covariance, fit.tie, fit.tie_share, average, True)
            criterion = log_determinant if "determinant" in way else pairs.order_gain
            with patch.object(pairs, "order_gain", criterion):
                capacity = batch if to_all else -(-2 * batch // k)
                chosen = pairs.next_pairs(fit, batch, capacity, () if to_all else asked)
            if not chosen:
                break
            left, right, who = (
                np.array([getattr(one, name) for one in chosen]) for name in ("left", "right", "annotator")
            )
            if to_all:
                who = game.rng.integers(0, k, len(left))
            asked |= set(zip(*(codes.tolist() for codes in (who, left, right)), strict=True))
        seen = [np.append(*both) for both in zip(seen, (left, right, who), strict=True)]
        answers = np.append(answers, game.outcomes(left, right, who))
    names = [way] if way != EVENLY else [EVENLY, "evenly, ranked by evalica"]
    return {name: found.get(name, MOST) for name in names}


def by_evalica(compared: Comparisons) -> Floats:
    """Return evalica's log strengths, where a tie is half a win of each."""
    winner = [(Winner.Draw, Winner.X, Winner.Y)[one] for one in compared.outcome]
    scores = bradley_terry(*(np.array(compared.items)[side] for side in (compared.left, compared.right)), winner).scores
    return np.log(scores.reindex(compared.items).fillna(1e-9).to_numpy())


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, tournaments=40, close=20, workers=2)
    page, figures = results.Page(), dict[str, Any]()
    for scale, games in ((2.0, options.tournaments), (1.0, options.close)):
        jobs = [(seed, way, scale) for way in WAYS for seed in range(games)]
        asked: dict[str, list[int]] = {}
        for found in results.side_by_side(needed, jobs, options.workers):
            for way, count in found.items():
                asked.setdefault(way, []).append(count)
        evenly = np.array(asked[EVENLY])
        rows = figures[f"{scale:g}"] = {
            way: {
                "median": float(np.median(counts)),
                "ratio": float(np.median(counts) / np.median(evenly)),
                **dict(zip(("25 %", "50 %", "75 %"), np.quantile(counts / evenly, (0.25, 0.5, 0.75)), strict=True)),
                "never": sum(count == MOST for count in counts),
            }
            for way, counts in asked.items()
        }
        page.tell(
            f"Comparisons to a tau of {TAU} in {games} tournaments, strengths with standard deviation {scale:g}:",
            "median, its ratio to evenly drawn pairs, quartiles of the ratios of tournaments, never within the limit",
            *results.table(rows),
            "",
        )
        page.held(results.at_most(f"{ALL_CHOSEN}: ratio of medians", rows[ALL_CHOSEN]["ratio"], 0.6, ".2f"))
        page.held(results.at_most(f"{CHOSEN}: ratio of medians", rows[CHOSEN]["ratio"], 0.6, ".2f"))
    if options.save:
        page.save("preferences", figures, "preferences.rankings --save")


if __name__ == "__main__":
    main()
