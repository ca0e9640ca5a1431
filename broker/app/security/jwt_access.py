"""What a process needs to accept the tokens of an identity provider, built from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from actors import ChildSpec, MailboxSpec
from broker.app.process_errors import CannotStart
from broker.app.security.key_sources import FileSource, KeySource, key_source
from broker.app.security.key_watch import KeyWatch, read_if_due
from broker.core.security.jwt_rules import JwtRules, parsed_algorithms
from broker.core.security.key_refresh import KeyRefresh
from broker.edge.access.jwt.jwt_tokens import JwtTokens
from broker.edge.access.jwt.key_ring import KeyRing
from broker.process_settings import Settings


@dataclass(frozen=True, slots=True)
class JwtAccess:
    """The check of such tokens, and how their keys are kept new."""

    tokens: JwtTokens
    ring: KeyRing
    source: KeySource

    def child(self) -> ChildSpec:
        """The actor that reads the keys."""

        def watch() -> KeyWatch:
            return KeyWatch(self.ring, self.source)

        # Looks that are missed need not be made up for.
        return ChildSpec("jwt_keys", watch, MailboxSpec(bound=16))


async def jwt_access(settings: Settings, now_s: Callable[[], float]) -> JwtAccess | None:
    """None when no identity provider is set. Reads the keys once.

    Raises CannotStart for a file without keys. A URL that does not answer is only reported: a
    provider that is away must keep no broker from starting.
    """
    if not settings.jwt_jwks:
        return None
    source = key_source(settings.jwt_jwks, settings.jwt_refresh_s)
    ring = KeyRing(KeyRefresh(source.period_s, source.pause_s), now_s)
    await read_if_due(ring, source)
    if isinstance(source, FileSource) and not ring.keys:
        why = ring.failure or "; ".join(ring.keys.ignored) or "it holds no keys"
        raise CannotStart(
            f"jwt_jwks: {settings.jwt_jwks} has no key for JWTs: {why}; write the key set of the"
            " identity provider there, or give its https URL"
        )
    return JwtAccess(JwtTokens(_rules(settings), ring), ring, source)


def _rules(settings: Settings) -> JwtRules:
    return JwtRules(
        settings.jwt_issuer,
        settings.jwt_audience,
        settings.jwt_user_claim,
        settings.jwt_roles_claim,
        parsed_algorithms(settings.jwt_algorithms),
    )
