"""Measure how far suggestions pull the answers of a stored project, and leave copies out of the fit.

pulls_of_suggestions    the pull, with intervals (`hitl.models.analysis.anchoring`)
without_copies          question -> evidence without answers that copy a suggestion, to fit the consensus to
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from hitl.evidence import Evidence
    from hitl.models.analysis.anchoring import Pulls
    from hitl.settings import Settings
    from hitl.store import Store


def pulls_of_suggestions(settings: Settings, store: Store, evidence: Mapping[str, Evidence]) -> Pulls | None:
    """Compare answers with and without suggestions. Return None if nobody has seen any, or if they are not a model's.

    `evidence` names items by the platform's keys.
    """
    import pandas as pd

    from hitl.models.analysis.anchoring import pulls

    answers = _answers(settings, store, evidence)
    return pulls(pd.concat(answers.values())) if answers else None


def without_copies(settings: Settings, store: Store, evidence: Mapping[str, Evidence]) -> dict[str, Evidence]:
    """Return the evidence, but if suggestions clearly pull answers, without as many as are copies, drawn at random.

    The same answers are left out every time, as long as the pull stays the same.
    """
    import pandas as pd

    from hitl.models.analysis.anchoring import pull, thinned

    answers = _answers(settings, store, evidence)
    share = pull(pd.concat(answers.values())).copies_among_equal if answers else 0.0
    pulled = answers if share > 0 else {}
    without = {name: thinned(evidence[name], own, share, settings.name, name) for name, own in pulled.items()}
    return {**evidence, **without}


def _answers(settings: Settings, store: Store, evidence: Mapping[str, Evidence]) -> dict[str, pd.DataFrame]:
    """Return question -> the answers that enter the comparison (`anchoring.randomized`); none if there is nothing.

    A blind item that someone answered under a suggestion, because the share was raised later, is in neither arm.
    """
    from hitl.models.analysis.anchoring import is_blind, model_answers, randomized

    seen = store.suggestions_seen(settings.name).to_pandas().dropna()
    if seen.empty or settings.serve.suggest == "consensus":
        return {}
    names = store.annotator_names(settings.name)
    times = seen.groupby(seen.annotator.map(lambda key: names.get(key, key))).time.agg(["min", "max"])
    seen_items, answers = set(seen["item"]), {}
    for question, known in evidence.items():
        if known.parts is not None or not known.probabilities:
            continue
        items = list(map(str, known.annotations.items))
        blind_n = np.array([is_blind(settings.name, item, settings.serve.blind_share) for item in items])
        p_nj = model_answers(known, {})
        p_nj[blind_n & np.array([item in seen_items for item in items])] = np.nan
        of_people = times.reindex(list(map(str, known.annotations.annotators)))
        start_k, end_k = (of_people[name].to_numpy(float) for name in ("min", "max"))  # NaN: saw none, nothing counts
        answers[question] = randomized(known, p_nj, blind_n, start_k, end_k)
    return answers
