"""Tables that do not fit in memory: a folder of shards, each with all labels of its items, in the same codes.

forms       contents of a folder: manifest, annotators, one Arrow file per shard; written atomically
runs        rows on disk, sorted by the hash of their item: the intermediate form between tables and shards
encoding    tables of names -> a folder of shards, in bounded memory
reading     a folder -> a sequence of `Evidence`, mapped into memory one at a time
places      files, globs of files and addresses such as s3://bucket/labels/*.parquet
"""
