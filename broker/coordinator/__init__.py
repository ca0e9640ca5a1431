"""The coordinator: ticks, collections, pchannel assignment, broadcasts and batch commits.

All its state is in the metadata store; an actor that restarts reads it there again. README.md has
the tree of actors, the protocols and the arguments behind them.
"""
