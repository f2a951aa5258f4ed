"""Names of the combiners, and where their classes are."""

from __future__ import annotations

from hitl.registry import Registry

COMBINERS = Registry(
    "hitl.combiners",
    "method",
    {
        "default": "hitl.models.default:DefaultCombiner",
        "majority": "hitl.models.majority:MajorityVote",
        "weighted-majority": "hitl.models.majority:WeightedMajority",
        "weighted-sum": "hitl.models.majority:WeightedSum",
        "mean-score": "hitl.models.mean_score:MeanScore",
        "one-coin": "hitl.models.coins:OneCoin",
        "two-coin": "hitl.models.coins:TwoCoin",
        "dawid-skene": "hitl.models.dawid_skene:DawidSkene",
        "hierarchical-dawid-skene": "hitl.models.hierarchy.hierarchical_dawid_skene:HierarchicalDawidSkene",
        "ordinal": "hitl.models.ordinal:Ordinal",
        "moments": "hitl.models.moment_matching:MomentMatching",
        "vb-ibcc": "hitl.models.vb_ibcc:VBIBCC",
        "ptbcc": "hitl.models.ptbcc:PTBCC",
        "mace": "hitl.models.mace:MACE",
        "glad": "hitl.models.glad:GLAD",
        "gibbs-ibcc": "hitl.models.gibbs_ibcc:GibbsIBCC",
        "ebcc": "hitl.models.gibbs_ibcc:EBCC",
        "dbcc": "hitl.models.dbcc:DBCC",
        "edbcc": "hitl.models.dbcc:EDBCC",
        "pl": "hitl.models.pl:PL",
        "pl-em": "hitl.models.pl_em:PLEM",
        "vb-ibcc-models": "hitl.models.vb_ibcc:VBIBCCWithModels",
        "ll": "hitl.models.ll:LL",
        "sp": "hitl.models.coins:SP",
        "lr": "hitl.models.lr:LR",
        "bayesian-pl": "hitl.models.bayesian_pl:BayesianPL",
        "gpc-ma": "hitl.models.gpc_ma:GPCMA",
        "variational-gpc-ma": "hitl.models.variational_gpc_ma:VariationalGPCMA",
        "sequential-dawid-skene": "hitl.models.sequences.chains:SequentialDawidSkene",
        "sequential-ibcc": "hitl.models.sequences.chains:SequentialIBCC",
        "bsc-seq": "hitl.models.sequences.chains:BSCSeq",
        "network-dawid-skene": "hitl.models.graphs.networks:NetworkDawidSkene",
        "network-ibcc": "hitl.models.graphs.networks:NetworkIBCC",
        "learned": "hitl.models.learning.learned:Learned",
        "gpc-gold": "hitl.models.gpc_ma:GPCGold",
        "gpc-majority": "hitl.models.gpc_ma:GPCMajority",
        "gpc-concatenated": "hitl.models.gpc_ma:GPCConcatenated",
    },
)
"""Method name -> location of its class."""
