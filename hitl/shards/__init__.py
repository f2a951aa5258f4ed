"""Tables that do not fit in memory: a folder of shards, each with all labels of its items, in the same codes.

encoding    tables of names -> a folder of shards, in bounded memory
runs        rows on disk, sorted by the hash of their item: the intermediate form between tables and shards
reading     the files of a folder, as a sequence of `Evidence`, mapped into memory one at a time
combining   a folder of shards -> a folder of results, in this process or on a Dask `cluster`
places      files, globs of files and addresses such as s3://bucket/labels/*.parquet
"""
