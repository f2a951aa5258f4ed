"""CROWDLAB and ActiveLab of cleanlab, asked with hitl's tables.

Goh, Tkachenko & Mueller 2022, "CROWDLAB: Supervised learning to infer consensus labels and quality scores for data with
multiple annotators"; Goh & Mueller 2023, "ActiveLab: Active learning with re-labeling by multiple annotators".

    p_nj  =  (w_M p_M[n, j] + sum_{k labeled n} w_k p_k[n, j]) / (w_M + sum_{k labeled n} w_k)                       (1)
    p_k[n, j]  =  P where k labeled n as j, else (1 - P) / (J - 1)

with P how often annotators agree with the consensus, over items with two labels or more, w_k and w_M how much better
than always the most frequent class annotator and model are. cleanlab returns the weights, the consensus labels and the
probabilities of these; (1) gives the probabilities of the other classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints


def wide(annotations: Annotations) -> Floats:
    """(N, K') class codes of labels, NaN where there is none, of the annotators who gave one."""
    label_nk = np.full((annotations.n_items, annotations.n_annotators), np.nan)
    label_nk[annotations.item, annotations.annotator] = annotations.label
    return label_nk[:, ~np.isnan(label_nk).all(axis=0)]


def posterior(label_nk: Floats, p_nj: Floats, weight_k: Floats, model_weight: float, agreement: float) -> Floats:
    """(N, J) equation (1), with P = `agreement`."""
    n_classes = p_nj.shape[1]
    weight_nk = np.where(np.isnan(label_nk), 0.0, weight_k)
    others = (1 - agreement) / (n_classes - 1)
    sum_nj = model_weight * p_nj + others * weight_nk.sum(axis=1)[:, None]
    for j in range(n_classes):
        sum_nj[:, j] += (agreement - others) * (weight_nk * (label_nk == j)).sum(axis=1)
    found: Floats = sum_nj / (model_weight + weight_nk.sum(axis=1))[:, None]
    return found


def crowdlab(annotations: Annotations, p_nj: Floats, calibrated: bool = False) -> tuple[Ints, Floats]:
    """(N,) consensus labels and (N, J) probabilities; every item has a label. `calibrated`: temperature scaling first.

    Raises ArithmeticError where (1) does not give the probabilities that cleanlab has of its consensus labels.
    """
    from cleanlab.internal.multiannotator_utils import find_best_temp_scaler, temp_scale_pred_probs
    from cleanlab.multiannotator import get_label_quality_multiannotator

    label_nk = wide(annotations)
    with quietly():
        if calibrated:
            p_nj = temp_scale_pred_probs(p_nj, find_best_temp_scaler(label_nk, p_nj))
        found: dict[str, Any] = get_label_quality_multiannotator(
            label_nk, p_nj, return_detailed_quality=False, return_annotator_stats=False, return_weights=True
        )
    quality = found["label_quality"]
    label_n = quality["consensus_label"].to_numpy().astype(np.int32)
    several = quality["num_annotations"].to_numpy() > 1
    agreement = float(quality["annotator_agreement"].to_numpy()[several].mean())
    q_nj = posterior(label_nk, p_nj, found["annotator_weight"], found["model_weight"], agreement)
    own = quality["consensus_quality_score"].to_numpy()
    if not np.allclose(q_nj[np.arange(len(label_n)), label_n], own, atol=1e-9):
        raise ArithmeticError("cleanlab's probabilities are not those of equation (1)")
    return label_n, q_nj


def active_lab(annotations: Annotations, p_nj: Floats) -> npt.NDArray[np.float64]:
    """(N,) ActiveLab's scores in [0, 1]: the lower, the sooner an item should be labeled again."""
    from cleanlab.multiannotator import get_active_learning_scores

    with quietly():
        scores, _ = get_active_learning_scores(wide(annotations), p_nj)
    return np.asarray(scores, dtype=np.float64)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what cleanlab prints of annotators who share no item with others."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield
