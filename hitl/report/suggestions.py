"""Say how far suggestions pull the answers of a stored project (`hitl.models.analysis.anchoring`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.analysis.anchoring import Pulls
    from hitl.settings import Settings
    from hitl.store import Store


def pulls_of_suggestions(
    settings: Settings, store: Store, evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]
) -> Pulls | None:
    """Compare answers with and without suggestions. Return None if nobody has seen any, or if they are not a model's.

    `evidence` and `results` name items by the platform's keys. A blind item that somebody answered under a suggestion,
    because the share was raised later, is in neither arm.
    """
    import pandas as pd

    from hitl.models.analysis.anchoring import is_blind, model_answers, pulls, randomized

    seen = store.suggestions_seen(settings.name).to_pandas().dropna()
    if seen.empty or settings.serve.suggest == "consensus":
        return None
    names = store.annotator_names(settings.name)
    times = seen.groupby(seen.annotator.map(lambda key: names.get(key, key))).time.agg(["min", "max"])
    seen_items, answers = set(seen["item"]), []
    for question, known in evidence.items():
        if known.parts is not None or not known.probabilities:
            continue
        items = list(map(str, known.annotations.items))
        blind_n = np.array([is_blind(settings.name, item, settings.serve.blind_share) for item in items])
        p_nj = model_answers(known, results[question].temperatures)
        p_nj[blind_n & np.array([item in seen_items for item in items])] = np.nan
        of_people = times.reindex(list(map(str, known.annotations.annotators)))
        start_k, end_k = (of_people[name].to_numpy(float) for name in ("min", "max"))  # NaN: saw none, nothing counts
        answers.append(randomized(known, p_nj, blind_n, start_k, end_k))
    return pulls(pd.concat(answers)) if answers else None
