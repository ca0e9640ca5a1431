"""The service that shows and changes users, roles and tokens."""
