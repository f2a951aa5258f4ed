"""Models trained while a project is labeled.

`features` computes features of items and stores them. `training` trains on the labels and stores the predictions.
`graph` links items.
"""
