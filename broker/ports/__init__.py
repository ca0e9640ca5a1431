"""The interfaces that the actors need from the outside, one Protocol a file, with its contract.

Drivers in `broker/wal`, `broker/meta` and `broker/codec` implement them; `broker/app` picks one.
Nothing here imports a driver.
"""
