"""The meta table: records of databases, collections, partitions, aliases and indexes."""
