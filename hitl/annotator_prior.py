"""What is expected of an annotator before any of their labels is judged: one source for every method that needs it.

Three of four labels right, with the weight of four labels: the smallest whole numbers with the accuracy that Kerrigan,
Smyth & Steyvers 2021 (section 4) expect of an annotator not met. In a confusion row, ACCURACY is the mean of the
diagonal and LABELS the sum of the pseudo-counts.
"""

ACCURACY = 0.75
"""Expected share of right labels, in (0, 1)."""

LABELS = 4.0
"""How many labels of their own outweigh that expectation."""
