"""Annotations as tables of names, and tables of items x classes in the order of annotations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hitl.annotations import Annotations, Floats


def named(annotations: Annotations) -> pd.DataFrame:
    """Return a row per label: task, worker, label; unnamed annotators are one worker."""
    columns = {"item": "task", "annotator": "worker"}
    return annotations.table().to_pandas().rename(columns=columns).fillna({"worker": "people"})


def aligned(table: pd.DataFrame, annotations: Annotations) -> Floats:
    """Return (N, J) probabilities from a table of items x classes; equal ones where it says nothing."""
    p_nj: Floats = table.reindex(index=list(annotations.items), columns=list(annotations.classes)).to_numpy(float)
    p_nj = np.nan_to_num(p_nj)
    p_nj[p_nj.sum(axis=1) == 0] = 1.0
    return p_nj / p_nj.sum(axis=1, keepdims=True)
