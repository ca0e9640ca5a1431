"""Values of the master: the records of its meta table and the ranges that it gives out."""
