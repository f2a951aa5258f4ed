"""Classifiers that learn from the consensus while people label.

`classifiers` train on some items and predict others. `out_of_fold` ensures that no item is predicted by a model that
has seen its labels. `learned` is the combiner that adds the predictions to the annotators if they are informative.
`gpc_baselines` are the baselines of GPC-MA.
"""
