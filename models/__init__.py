"""Combiners: a truth prior times an annotator model; one algorithm a file. Classes load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.models.bayesian_pl import BayesianPL as BayesianPL
    from hitl.models.coins import OneCoin as OneCoin
    from hitl.models.coins import TwoCoin as TwoCoin
    from hitl.models.combiner import Applicable as Applicable
    from hitl.models.combiner import Combiner as Combiner
    from hitl.models.combiner import Followable as Followable
    from hitl.models.combiner import Updatable as Updatable
    from hitl.models.dawid_skene import DawidSkene as DawidSkene
    from hitl.models.dbcc import DBCC as DBCC
    from hitl.models.default import DefaultCombiner as DefaultCombiner
    from hitl.models.ebcc import EBCC as EBCC
    from hitl.models.edbcc import EDBCC as EDBCC
    from hitl.models.gibbs_ibcc import GibbsIBCC as GibbsIBCC
    from hitl.models.ll import LL as LL
    from hitl.models.lr import LR as LR
    from hitl.models.majority import MajorityVote as MajorityVote
    from hitl.models.mean_score import MeanScore as MeanScore
    from hitl.models.moment_matching import MomentMatching as MomentMatching
    from hitl.models.pl import PL as PL
    from hitl.models.pl_em import PLEM as PLEM
    from hitl.models.sp import SP as SP
    from hitl.models.vb_ibcc import VBIBCC as VBIBCC
    from hitl.models.vb_ibcc_models import VBIBCCWithModels as VBIBCCWithModels
    from hitl.models.weighted_majority import WeightedMajority as WeightedMajority
    from hitl.models.weighted_sum import WeightedSum as WeightedSum

_PUBLIC = {
    "Applicable": "combiner",
    "BayesianPL": "bayesian_pl",
    "Combiner": "combiner",
    "DBCC": "dbcc",
    "DawidSkene": "dawid_skene",
    "DefaultCombiner": "default",
    "EBCC": "ebcc",
    "EDBCC": "edbcc",
    "Followable": "combiner",
    "GibbsIBCC": "gibbs_ibcc",
    "LL": "ll",
    "LR": "lr",
    "MajorityVote": "majority",
    "MeanScore": "mean_score",
    "MomentMatching": "moment_matching",
    "OneCoin": "coins",
    "PL": "pl",
    "PLEM": "pl_em",
    "SP": "sp",
    "TwoCoin": "coins",
    "Updatable": "combiner",
    "VBIBCC": "vb_ibcc",
    "VBIBCCWithModels": "vb_ibcc_models",
    "WeightedMajority": "weighted_majority",
    "WeightedSum": "weighted_sum",
}
__all__ = [
    "DBCC",
    "EBCC",
    "EDBCC",
    "LL",
    "LR",
    "PL",
    "PLEM",
    "SP",
    "VBIBCC",
    "Applicable",
    "BayesianPL",
    "Combiner",
    "DawidSkene",
    "DefaultCombiner",
    "Followable",
    "GibbsIBCC",
    "MajorityVote",
    "MeanScore",
    "MomentMatching",
    "OneCoin",
    "TwoCoin",
    "Updatable",
    "VBIBCCWithModels",
    "WeightedMajority",
    "WeightedSum",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"hitl.models.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'hitl.models' has no attribute {name!r}")
