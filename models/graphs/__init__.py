"""Methods for items that are linked: documents that cite each other, pixels side by side, items with like features.

`network_dawid_skene` and `network_ibcc` are the confusion-matrix methods with a field on a graph as truth prior.
`learned_field` is what they keep of the field.
"""
