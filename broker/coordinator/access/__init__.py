"""Users, roles and tokens in the metadata store."""
