"""What `scripts/bench.py` measures, one idea a file. Next: scripts/measure.py"""
