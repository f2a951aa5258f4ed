"""Kinds of answers: one of the options, spans of a text or of time, boxes and masks on an image.

`kind` has the Protocol, the registry and `kind_of`; a kind of another package is an entry point of `hitl.kinds`.
"""
