"""Models run by us over a table of items: scikit-learn estimators and torch modules, images among their inputs.

`inputs` reads the items in batches, `loading` finds the model, `estimators` and `networks` run it, `folds` lets no
model judge an item whose label it has seen, and `running` writes the probabilities, in parts, so that a run can be
resumed.
"""
