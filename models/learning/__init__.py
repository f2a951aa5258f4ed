"""Classifiers that learn from the consensus while people label.

`classifiers` train on some items and predict others, `out_of_fold` lets no item be predicted by a model that has seen
its labels, and `learned` is the combiner that puts the predictions beside the annotators if they are `informative`.
`gpc_baselines` are the baselines of GPC-MA.
"""
