"""Recordings of which annotators mark stretches of time.

timeline_labels      which stretches of which recordings annotators marked
segment_rows         the same in tables
pictures             a recording and its stretches, drawn
"""
