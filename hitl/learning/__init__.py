"""Models that learn while a project is labeled.

`features` makes numbers from the contents of items and stores them; `training` trains on the labels and stores the
predictions; `graph` links items.
"""
