"""Jobs on Spark: they read raw traces, and write interests, churn traces, profiles and overlays.

    session        one Spark session, with the Java it needs
    sources        the formats that can be read, and the handling of rows that do not parse
    stages         functions DataFrame -> DataFrame with declared schemas: no session, no action, no RDD
    jobs           sources, stages and sinks together; only jobs read, write, cache or count anything
    sinks          folders with a manifest, written completely or not at all
    file_systems   files and folders that Spark can reach
    logs           logs that grow, recognized by their content; `tail` and `streams` make streams of them
    lineage        the chain of manifests from a result back to raw files; `beside` writes those of commands
    progress       the progress of running Spark jobs

Importing this package imports no Spark; its modules do.
"""
