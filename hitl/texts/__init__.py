"""Texts of which annotators mark parts.

`span_labels` is what they marked and what that says of each token, `matched_spans` which spans of different annotators
are about the same part (`average_linkage`), and `text_items` the texts as items. `span_rows` reads spans from tables,
`span_tables` writes them, and `stored_answers` makes evidence of what a project has stored.

`marked_labels` is what spans of texts have in common with stretches of recordings (`hitl.timelines`).
"""
