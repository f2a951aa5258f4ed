"""Methods for linked items: documents that cite each other, neighbouring pixels, items with similar features."""
