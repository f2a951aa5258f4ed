"""What a model that learns costs where features say nothing: accuracy and log loss beside annotators alone.

    python -m tests.bench.bench_learn_noise [--seeds 10] [--save]

Twenty features of standard normal noise an item, on crowds of many kinds, with 15 %, 40 % and all of their labels.
Something differs only where the model was kept though it knows nothing. With independent predictions that would be one
fit of 44 (`informative`); out of fold they are not quite independent, and it is some more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl import score
from hitl.models import DefaultCombiner, Learned
from tests.bench import results
from tests.reference_data import crowd

SETS = (
    "bluebirds",
    "rte",
    "tweet_sentiment",
    "weather_amt",
    "weather_cf",
    "face_sentiment",
    "music_genre",
    "labelme",
    "valence",
    "wsd",
    "sentence_polarity_amt",
    "reuters_crowd",
)
SHARES = (0.15, 0.4, 1.0)
FIGURES = ("more", "more log loss", "kept")


def compared(name: str, share: float, seeds: int) -> dict[str, Any]:
    """Accuracy and log loss of annotators alone, what is more with the model, and how often it was kept."""
    recorded = crowd(name)
    assert recorded.truth is not None
    known, found = recorded.known, []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, SETS.index(name)])
        there = rng.random(len(recorded.annotations)) < share
        noise = rng.normal(size=(recorded.annotations.n_items, 20))
        bare = replace(recorded, annotations=recorded.annotations.select(there), truth=None)
        fits = DefaultCombiner().fit(bare), Learned().fit(replace(bare, features=noise))
        right = [score.accuracy(fit.probabilities[known], recorded.truth[known]) for fit in fits]
        loss = [
            -float(np.mean(np.log(np.maximum(fit.probabilities[known, recorded.truth[known]], 1e-12)))) for fit in fits
        ]
        found.append((right[0], right[1] - right[0], loss[0], loss[1] - loss[0], bool(fits[1].temperatures)))
    mean = np.mean(found, axis=0)
    keys = ("accuracy", "more", "log loss", "more log loss", "kept")
    return dict(zip(keys, map(float, mean), strict=True)) | {"least": float(np.min([one[1] for one in found]))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/learn_noise.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    lines = [
        f"noise as features, {options.seeds} seeds: what is more with a model that learns",
        f"{'set':24}{'labels':>8}{'accuracy':>10}{'more':>9}{'worst':>9}{'log loss':>10}{'more':>9}{'kept':>7}",
    ]
    print("\n".join(lines))
    figures: dict[str, Any] = {}
    for name in SETS:
        for share in SHARES:
            kept = figures[f"{name} {share}"] = compared(name, share, options.seeds)
            lines.append(
                f"{name:24}{share:8.0%}{kept['accuracy']:10.4f}{kept['more']:+9.4f}{kept['least']:+9.4f}"
                f"{kept['log loss']:10.4f}{kept['more log loss']:+9.4f}{kept['kept']:7.0%}"
            )
            print(lines[-1], flush=True)
    more, loss, kept_in = (float(np.mean([one[key] for one in figures.values()])) for key in FIGURES)
    lines.append(f"\nthe model was kept in {kept_in:.1%} of the fits")
    bars = [
        ("accuracy on average: at most 0.002 lower", f"{more:+.4f}", more >= -0.002),
        ("log loss on average: at most 0.01 higher", f"{loss:+.4f}", loss <= 0.01),
    ]
    told = results.held(bars)
    print("\n".join(told))
    if options.save:
        results.save("learn_noise", [*lines, *told], figures)


if __name__ == "__main__":
    main()
