"""The body of each long run: `runs/NAME.py` is what `scripts/NAME.py` starts in its environment."""
