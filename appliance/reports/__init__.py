"""From what is shipped to tables and reports, in Spark's interpreter, never in a node's.

    archive (folder or HDFS)          tables (folder or HDFS)                    reports
    manifests + snapshot files  ──▶   records/date=…/shard=…/part-*.parquet ──▶  Parquet, CSV,
    head.json, keys file      ingest  _ledger/state-*.json, rooms-*.bin   build  one HTML page

What an analyst may rely on:

1. A row is in the tables only if a trusted key stands for its manifest, the manifest for its bytes,
   and its room's chain for its place: over the borders of files, periods and runs of `ingest`.
2. What fails is quarantined with its reason, file and position, and the rest goes on. A room's
   chain may skip only as many records as were lost between its two sides.
3. The tables are a function of the archive. Ingesting again, hour by hour or all at once, after a
   kill at any moment: the same rows.

How: the driver reads manifests (`archive`), deals their files as units of work over Spark's tasks
(`plan`), and each task streams its files through one buffer, verifies whole blocks of records as
numpy columns (`block`) and writes Parquet into a staging folder (`unit`). What a task cannot know,
the chains at the borders, the driver judges by spans (`span`), a row for each room and file. The
ledger (`ledger`) makes a batch count all at once: one rename. A unit with a bad file is done again
without that file.

    file_store, webhdfs folders, local and on HDFS          source, stream   Spark data sources
    hdfs_stream         a file there, as its bytes come
    columns, block      records as columns, verified        ingest           the driver's loop
    span, unit, plan    chains; work of one task            compaction       few files for each day
    archive, ledger     what is shipped; what counts        questions        tables to tables
    build, page, plot   the report                          main             the command line
"""
