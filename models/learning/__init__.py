"""Classifiers that learn from the consensus while people label: out of fold, on soft labels, for the same consensus.

`logistic` and `classifiers` train on some items and predict others, `out_of_fold` lets no item be predicted by a model
that has seen its labels, `learned` is the combiner that puts the predictions beside the annotators.
"""
