"""What the actors need from the outside world, one Protocol a file, each method with its contract.

Drivers under `broker/wal` and `broker/meta` implement these; `broker/app` picks one. Nothing
here imports a driver.
"""
