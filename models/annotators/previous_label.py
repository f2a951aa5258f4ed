"""Annotators whose answer depends on their previous one (Simpson & Gurevych 2019, the seq model of BSC).

    l_tk | z_t = j, l_{t-1,k} = h  ~  Cat(pi_k[h, j])

An annotator who marks the first token of a name goes on to mark the next; one who overlooks it overlooks the rest. Each
annotator is split into one pseudo-annotator per previous label, and one for the beginning or after an item that they
did not label. So any annotator model can be fitted to the pseudo-annotators.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.models.priors.markov_chain import Sequences


def after_own_labels(annotations: Annotations, sequences: Sequences) -> Annotations:
    """Split annotators by previous label: k (L + 1) + h has given label h before, with h = L for none.

    Labels without an annotator count as having no previous label. The new annotators are named by their numbers.
    """
    n_options = annotations.n_options
    rank_n = np.empty(annotations.n_items, dtype=np.int64)
    rank_n[sequences.rows] = np.arange(annotations.n_items)
    begins_n = np.ones(annotations.n_items, dtype=bool)
    begins_n[sequences.rows[1:]] = ~sequences.follows
    order = np.lexsort((rank_n[annotations.item], annotations.annotator))
    item, annotator, label = (column[order] for column in (annotations.item, annotations.annotator, annotations.label))
    next_to = (annotator[1:] == annotator[:-1]) & (np.diff(rank_n[item]) == 1) & ~begins_n[item[1:]]
    if annotations.anonymous is not None:
        next_to &= annotator[1:] != annotations.anonymous
    before = np.full(len(annotations), n_options, dtype=np.int32)
    before[order[1:][next_to]] = label[:-1][next_to]
    return replace(
        annotations,
        annotator=(annotations.annotator * (n_options + 1) + before).astype(np.int32),
        annotators=tuple(range(annotations.n_annotators * (n_options + 1))),
        anonymous=None if annotations.anonymous is None else annotations.anonymous * (n_options + 1) + n_options,
    )


def merged(counts_klj: Floats, n_options: int) -> Floats:
    """Merge counts (K (L + 1), L, J) of the pseudo-annotators into (K, L, J) counts per annotator."""
    total: Floats = counts_klj.reshape(-1, n_options + 1, *counts_klj.shape[1:]).sum(axis=1)
    return total
