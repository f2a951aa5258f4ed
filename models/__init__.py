"""Combiners: methods that estimate true classes from labels, one algorithm per file. Classes load on first use.

Example:
    >>> import hitl
    >>> labels = {"item": ["a", "a", "b", "b"], "annotator": [1, 2, 1, 2], "label": ["cat", "cat", "dog", "dog"]}
    >>> hitl.combine(labels, method=hitl.models.DawidSkene(smoothing=0.1)).labels.tolist()
    ['cat', 'dog']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.models.bayesian_pl import BayesianPL as BayesianPL
    from hitl.models.coins import SP as SP
    from hitl.models.coins import OneCoin as OneCoin
    from hitl.models.coins import TwoCoin as TwoCoin
    from hitl.models.combiner import Applicable as Applicable
    from hitl.models.combiner import Combiner as Combiner
    from hitl.models.dawid_skene import DawidSkene as DawidSkene
    from hitl.models.dbcc import DBCC as DBCC
    from hitl.models.dbcc import EDBCC as EDBCC
    from hitl.models.default import DefaultCombiner as DefaultCombiner
    from hitl.models.gibbs_ibcc import EBCC as EBCC
    from hitl.models.gibbs_ibcc import GibbsIBCC as GibbsIBCC
    from hitl.models.glad import GLAD as GLAD
    from hitl.models.gpc_ma import GPCMA as GPCMA
    from hitl.models.gpc_ma import GPCConcatenated as GPCConcatenated
    from hitl.models.gpc_ma import GPCGold as GPCGold
    from hitl.models.gpc_ma import GPCMajority as GPCMajority
    from hitl.models.graphs.networks import NetworkDawidSkene as NetworkDawidSkene
    from hitl.models.graphs.networks import NetworkIBCC as NetworkIBCC
    from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene as HierarchicalDawidSkene
    from hitl.models.learning.learned import Learned as Learned
    from hitl.models.ll import LL as LL
    from hitl.models.lr import LR as LR
    from hitl.models.mace import MACE as MACE
    from hitl.models.majority import MajorityVote as MajorityVote
    from hitl.models.majority import WeightedMajority as WeightedMajority
    from hitl.models.majority import WeightedSum as WeightedSum
    from hitl.models.mean_score import MeanScore as MeanScore
    from hitl.models.moment_matching import MomentMatching as MomentMatching
    from hitl.models.ordinal import Ordinal as Ordinal
    from hitl.models.pl import PL as PL
    from hitl.models.pl_em import PLEM as PLEM
    from hitl.models.ptbcc import PTBCC as PTBCC
    from hitl.models.sequences.chains import BSCSeq as BSCSeq
    from hitl.models.sequences.chains import SequentialDawidSkene as SequentialDawidSkene
    from hitl.models.sequences.chains import SequentialIBCC as SequentialIBCC
    from hitl.models.variational_gpc_ma import VariationalGPCMA as VariationalGPCMA
    from hitl.models.vb_ibcc import VBIBCC as VBIBCC
    from hitl.models.vb_ibcc import VBIBCCWithModels as VBIBCCWithModels
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
