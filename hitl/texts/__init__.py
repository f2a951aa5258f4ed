"""Texts of which annotators mark parts.

`span_labels` is what they marked and what that says of each token, `span_rows` reads it from tables, `span_tables`
writes it, and `stored_answers` makes evidence of what a project has stored.
"""
