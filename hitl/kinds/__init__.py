"""Kinds of answers: one of the options, spans of texts or of time, and boxes or masks on images.

`kind` defines the protocol `Kind`, the registry and `kind_of`. Another package adds a kind as an entry point of
`hitl.kinds`.
"""
