"""Several coordinators on one store: one leads, the others stand by."""
