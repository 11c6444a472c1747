"""Everything on Spark: raw traces in, interests, churn traces and profiles out.

    session    one Spark session, with the Java it needs
    sources    the formats that are read, and what becomes of rows that do not parse
    stages     functions DataFrame -> DataFrame with declared schemas: no session, no action, no RDD
    jobs       sources, stages and sinks wired together; only here is anything read, written, cached or counted
    sinks      whole folders with a manifest, or nothing
    progress   what Spark is doing right now

Importing this package imports no Spark; its modules do.
"""
