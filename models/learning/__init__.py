"""Classifiers that learn from the consensus while people label: out of fold, on soft labels, for the same consensus.

`classifiers` train on some items and predict others, `out_of_fold` lets no item be predicted by a model that has seen
its labels, `informative` says whether the predictions know anything, and `learned` is the combiner that puts them
beside the annotators. `gpc_baselines` are what GPC-MA is measured against.
"""
