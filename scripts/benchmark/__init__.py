"""What `scripts/bench.py` and `scripts/bench_spark.py` measure, one subject in each module."""
