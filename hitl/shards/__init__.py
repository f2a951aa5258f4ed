"""Store and combine tables that do not fit in memory, as folders of shards.

A shard has all labels of its items. The shards of a folder have the same codes of annotators, classes and options.

encoding    tables of names -> a folder of shards, in bounded memory
runs        rows on disk, sorted by the hash of their item: the intermediate form between tables and shards
reading     a folder of shards as a sequence of `Evidence`, mapped into memory one at a time
combining   a folder of shards -> a folder of results, in this process or on a Dask `cluster`
places      files, globs of files and addresses such as s3://bucket/labels/*.parquet
"""
