"""tidemark.v1.Master: the services of the master."""
