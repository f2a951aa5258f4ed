"""Methods for linked items: documents that cite each other, neighboring pixels, items with similar features."""
