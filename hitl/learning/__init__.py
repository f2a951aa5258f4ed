"""Models trained while a project is labeled, and their inputs.

`features` computes features of items and stores them. `training` trains on labels and features and stores the
predictions. `graph` links items, for combiners that use a graph. `suggestions` measures how far suggestions pull
answers.
"""
