"""Models run by hitl over a table of items: scikit-learn estimators, torch modules and image networks.

`inputs` reads the items in batches, `loading` finds the model by its name, `predictor` and `networks` run it, `folds`
trains models so that none predicts an item whose label it has seen, and `running` writes the probabilities.
`language` asks language models. `features` turns texts, images and columns into numbers.
"""
