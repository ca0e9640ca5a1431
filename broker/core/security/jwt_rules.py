"""Decides about the header and the claims of a JWT; who checks its signature stands between.

RFC 7519 has the claims, RFC 8725 what to refuse. Errors name the check, never a value of the token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.core.security.access_book import Origin, Principal
from broker.model.failure import Refused, StreamingCode

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""All are asymmetric: a public key taken for a secret would let everybody sign."""
USER_PREFIX: Final = "jwt:"
"""What the names of such callers begin with. No stored user may have a colon in its name."""
LEEWAY_MS: Final = 60_000
"""How far the clock of the identity provider may be ahead of ours."""
TIME_S_MAX: Final = 253_402_300_799
"""The end of the year 9999."""
NAME_LENGTH_MAX: Final = 255
ROLE_LENGTH_MAX: Final = 128
ROLES_MAX: Final = 256
KEY_ID_LENGTH_MAX: Final = 256
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})


@dataclass(frozen=True, slots=True)
class JwtRules:
    """What a JWT must say. `user_claim` and `roles_claim` may be paths such as `realm.roles`."""

    issuer: str
    audience: str
    user_claim: str = "sub"
    roles_claim: str = "tidemark_roles"
    algorithms: tuple[str, ...] = ALGORITHMS


@dataclass(frozen=True, slots=True)
class JwtHeader:
    """Which key signed it, and how."""

    algorithm: str
    key_id: str


def bad_jwt(cause: str) -> Refused:
    """The refusal of a JWT; `cause` says what is wrong with it."""
    return Refused(StreamingCode.NOT_AUTHENTICATED, f"not authenticated: the JWT {cause}")


def checked_algorithms(text: str) -> str:
    """The setting as it is: names with commas between. Raises ValueError for another algorithm."""
    names = parsed_algorithms(text)
    for name in names:
        if name not in ALGORITHMS:
            raise ValueError(
                f"{name[:80]!r} is not accepted for JWTs; choose among {', '.join(ALGORITHMS)}"
            )
    if not names:
        raise ValueError(f"no algorithm is named; choose among {', '.join(ALGORITHMS)}")
    return text


def parsed_algorithms(text: str) -> tuple[str, ...]:
    """The names in the setting, each once."""
    return tuple(dict.fromkeys([it.strip() for it in text.split(",") if it.strip()]))


def checked_header(header: Mapping[str, object], rules: JwtRules) -> JwtHeader:
    """The parts that count. Where to find keys (`jku`, `x5u`, `jwk`) is never read from a token.

    Raises Refused(NOT_AUTHENTICATED).
    """
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise bad_jwt(
            "is signed with an algorithm (header `alg`) that this broker does not accept; it"
            f" accepts {', '.join(rules.algorithms)}"
        )
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise bad_jwt("is of another type (header `typ`) than JWT and at+jwt; pass an access token")
    if "crit" in header:
        raise bad_jwt("has critical extensions (header `crit`), and this broker knows none")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_LENGTH_MAX:
        raise bad_jwt("does not say which key signed it (header `kid`)")
    return JwtHeader(algorithm, key_id)


def principal_of(
    claims: Mapping[str, object], rules: JwtRules, now_ms: int, key: str = ""
) -> Principal:
    """Who the claims of a JWT with a valid signature speak of, until it expires.

    `key`: the fingerprint of the key that signed it, kept as the principal's token.

    Roles that the access book does not have grant nothing. Raises Refused(NOT_AUTHENTICATED).
    """
    if claims.get("iss") != rules.issuer:
        raise bad_jwt("is of another issuer (claim `iss`) than this broker's setting jwt_issuer")
    audience = claims.get("aud")
    if rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise bad_jwt(
            "is for another audience (claim `aud`) than this broker's setting jwt_audience"
        )
    expires_ms = _expires_ms(claims, now_ms)
    for claim, words in (("nbf", "is not valid yet"), ("iat", "was issued in the future")):
        since_ms = _time_ms(claims, claim)
        if since_ms is not None and since_ms > now_ms + LEEWAY_MS:
            raise bad_jwt(f"{words} (claim `{claim}`); compare the clocks")
    return Principal(
        USER_PREFIX + _user(claims, rules.user_claim),
        Origin.OTHER,
        token=key,
        roles=_roles(claims, rules.roles_claim),
        expires_ms=expires_ms,
    )


def _expires_ms(claims: Mapping[str, object], now_ms: int) -> int:
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise bad_jwt("does not say when it expires (claim `exp`)")
    # No leeway: streams that are open end at this moment, too.
    if expires_ms <= now_ms:
        raise bad_jwt("has expired (claim `exp`); get a new one")
    return expires_ms


def _time_ms(claims: Mapping[str, object], claim: str) -> int | None:
    """None when the claim is not there."""
    if claim not in claims:
        return None
    value = claims[claim]
    # To Python, true is the number 1.
    if not isinstance(value, int | float) or isinstance(value, bool) or not _is_time(value):
        raise bad_jwt(f"has a time that is none (claim `{claim}`); it must be seconds since 1970")
    return int(value * 1000)


def _is_time(value: float) -> bool:
    # False for what is no number, too.
    return 0 <= value <= TIME_S_MAX


def _user(claims: Mapping[str, object], claim: str) -> str:
    name = _found(claims, claim)
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise bad_jwt(f"does not name its user (claim {claim!r}, the setting jwt_user_claim)")
    if len(name) > NAME_LENGTH_MAX:
        raise bad_jwt(f"has a user name (claim {claim!r}) of over {NAME_LENGTH_MAX} characters")
    return name


def _roles(claims: Mapping[str, object], claim: str) -> tuple[str, ...]:
    """In one order: decisions are remembered by them."""
    given = _found(claims, claim)
    if given is None:
        return ()
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(it, str) for it in names):
        raise bad_jwt(
            f"has roles (claim {claim!r}, the setting jwt_roles_claim) that are neither a list of"
            " texts nor a text with spaces between"
        )
    roles = sorted({it for it in names if len(it) <= ROLE_LENGTH_MAX})
    if len(roles) > ROLES_MAX:
        raise bad_jwt(f"has {len(roles)} roles (claim {claim!r}); at most {ROLES_MAX}")
    return tuple(roles)


def _found(claims: Mapping[str, object], claim: str) -> object:
    """The claim of this name, else what the path leads to; None when nothing does."""
    if claim in claims:
        return claims[claim]
    here: object = claims
    for name in claim.split("."):
        if not isinstance(here, Mapping):
            return None
        here = here.get(name)
    return here
