"""Recordings of which annotators mark stretches of time.

`timeline_labels` is which stretches they marked, `segment_rows` reads them from tables, and `stored_segments` makes
evidence of what a project has stored. What they have in common with parts of texts is in `hitl.texts`.
"""
