"""Define `hitl learn`, which trains the model of `[learn]` now and reports how good it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hitl.cli import show
from hitl.cli.options import HERE, Config, Json, examples
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.store.model_predictions import Training

EXAMPLES = examples("hitl learn", "hitl learn --json")


def learn(config: Config = HERE, as_json: Json = False) -> None:
    """Train the model of \\[learn] on the labels as last pulled, out of fold; the next cycle uses what it predicts."""
    from hitl import cycle
    from hitl.project import opened

    with opened(config) as (settings, store, connector), show.progress(as_json) as progress:
        if settings.learn.model is None:
            raise BadSettings('learn.model: nothing learns; expected [learn] with model = "logistic" in hitl.toml')
        with store.lease(settings.name) as lease:
            cycle.embed(lease, settings, store, connector, progress)
            cycle.learn(lease, settings, store, connector.questions(), progress, anew=True)
        trainings = store.trainings(settings.name)
    if as_json:
        show.as_json({name: asdict(training) for name, training in trainings.items()})
        return
    if not trainings:
        show.line(
            "too few labels to learn from: expected two classes, and two labeled items a fold"
            + (", each of a group of its own" if settings.learn.groups else "")
        )
    for name, training in trainings.items():
        show.line(in_words(name, training))


def in_words(question: str, training: Training) -> str:
    """Describe the result of a training."""
    seen = f"{question}: learned from {show.counted(training.items, 'item')}"
    if not training.informs:
        return f"{seen}; it predicts others no better than the shares of the classes, and is not used"
    return (
        f"{seen}; of items that it did not see it predicts {training.agreement:.0%} as the annotators say, and is used"
    )
