"""Models that learn while a project is labeled.

`features` makes numbers of what items hold and keeps them; `training` trains on the labels and keeps what is predicted.
`graph` says which items are linked.
"""
