"""What the actors need from the outside world, one Protocol a file, each method with its contract.

Drivers implement these under `broker/wal`, `broker/meta`; `broker/app.py` picks one. Nothing here imports a driver.
"""
