"""A cluster over hosts that keeps running, and flights that pass through it while hosts die."""
