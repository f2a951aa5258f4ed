"""Combiners: a truth prior times an annotator model; one algorithm a file. Classes load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.models.combiner import Applicable as Applicable
    from hitl.models.combiner import Combiner as Combiner
    from hitl.models.dawid_skene import DawidSkene as DawidSkene
    from hitl.models.default import DefaultCombiner as DefaultCombiner
    from hitl.models.majority import MajorityVote as MajorityVote
    from hitl.models.pl import PL as PL
    from hitl.models.pl_em import PLEM as PLEM
    from hitl.models.vb_ibcc import VBIBCC as VBIBCC

_PUBLIC = {
    "Applicable": "combiner",
    "Combiner": "combiner",
    "DawidSkene": "dawid_skene",
    "DefaultCombiner": "default",
    "MajorityVote": "majority",
    "PL": "pl",
    "PLEM": "pl_em",
    "VBIBCC": "vb_ibcc",
}
__all__ = ["PL", "PLEM", "VBIBCC", "Applicable", "Combiner", "DawidSkene", "DefaultCombiner", "MajorityVote"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"hitl.models.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'hitl.models' has no attribute {name!r}")
