"""Methods for items that follow each other: tokens of a sentence, frames of a video.

`sequential_dawid_skene` and `sequential_ibcc` are the confusion-matrix methods with a Markov chain as truth prior, and
`bsc_seq` has annotators who depend on their own last label. `learned_chain` stores the chain in a consensus,
`cross_moments` estimates its transitions without iterations, and `spans` reads spans of BIO classes and compares them.
"""
