"""Items of known truth, asked to know the annotators: whoever was checked least is checked first.

Each answer on a known item says more about its annotator than one on an item that only the others' labels tell of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active.availability import Availability
from hitl.active.stopping import Judged
from hitl.crew import Crew


def checks(questions: Sequence[Judged], crew: Crew, free: Availability, wanted: int) -> list[tuple[int, int]]:
    """(item code, crew position) of at most `wanted` questions about items whose truth is known to every question.

    Annotators by turns, those with the fewest answers on known items first; each gets the known item with the fewest
    answers among those they may be asked about.
    """
    known = np.flatnonzero(np.all([evidence.known for evidence, _ in questions], axis=0))
    if not wanted or not known.size or not crew.names:
        return []
    annotations = questions[0][0].annotations
    waiting = {item for _, item in crew.asked}
    known = np.array([row for row in known if annotations.items[row] not in waiting], dtype=np.int64)
    allowed = free.mask_rows(known)
    left = free.capacity.copy()
    place = {name: k for k, name in enumerate(crew.names)}
    on_known = np.isin(annotations.item, known)
    times = np.bincount(annotations.annotator[on_known], minlength=annotations.n_annotators)
    checked = np.zeros(len(crew.names))
    for name, count in zip(annotations.annotators, times.tolist(), strict=True):
        if name in place:
            checked[place[name]] = count
    answers = annotations.labels_per_item[known].astype(np.float64)
    found: list[tuple[int, int]] = []
    while len(found) < wanted:
        able = (left > 0) & allowed.any(axis=0)
        if not able.any():
            break
        person = int(np.argmin(np.where(able, checked, np.inf)))
        row = int(np.argmin(np.where(allowed[:, person], answers, np.inf)))
        found.append((int(known[row]), person))
        allowed[row] = False  # an item once in a plan
        answers[row] += 1
        checked[person] += 1
        left[person] -= 1
    return found
