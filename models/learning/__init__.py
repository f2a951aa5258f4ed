"""Classifiers that learn from the consensus while people label.

`classifiers` train on some items and predict others. `learned` is the combiner that adds predictions out of fold to the
annotators if they are informative. `gpc_baselines` are the baselines of GPC-MA.
"""
