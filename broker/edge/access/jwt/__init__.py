"""Tokens of an identity provider: JWTs, checked by the keys that the provider publishes."""
