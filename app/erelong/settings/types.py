"""Types of settings: durations, networks, origins, and secrets that no output reveals."""

from __future__ import annotations

import base64
import binascii
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError
from yarl import URL

from erelong.clock.instants import parse_duration

MIN_SIGNING_KEY: Final = 24  # bytes
MIN_SECRET: Final = 8  # characters: masking a shorter one would damage ordinary text in responses

_PREFIX: Final = "whsec_"
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]+")


def read_duration(value: object) -> float:
    """Adapt `parse_duration` to pydantic."""
    try:
        return parse_duration(value)
    except ValueError as error:  # pydantic prefixes a plain ValueError with "Value error, "
        raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None


def _schema(**least: float) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "number", **least}, {"type": "string"}],
            "description": "Seconds as a number, or text: ISO 8601 (`PT5M`, `P1DT2H`) or short (`1h30m`, `250ms`).",
            "examples": [90, "PT5M", "1h30m"],
        },
        mode="validation",
    )


DURATION_SCHEMA: Final = _schema(minimum=0)
Duration = Annotated[float, BeforeValidator(read_duration), DURATION_SCHEMA]
PositiveDuration = Annotated[float, Field(gt=0), BeforeValidator(read_duration), _schema(exclusiveMinimum=0)]


def signing_key(secret: SecretStr) -> bytes:
    """Return the key in a Standard Webhooks secret; raise a ValueError that does not quote the secret."""
    text = secret.get_secret_value()
    try:
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None


def _refusal(reason: str) -> PydanticCustomError:
    return PydanticCustomError("outgoing", "{reason}", {"reason": reason})


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError as error:
        raise _refusal(f"should be a network such as 10.0.0.0/8 or fd00::/8: {error}") from None


def _origin(value: str) -> str:
    try:
        url = URL(value)
        if url.scheme in ("http", "https") and value.count("/") == 2 and url.raw_user is None:
            return str(url.origin())
    except ValueError:
        pass
    raise _refusal(f"should be an origin such as https://api.example or http://10.0.0.5:8000, not {value!r}")


def _signing_secret(secret: SecretStr) -> SecretStr:
    advice = f"make one with: echo {_PREFIX}$(openssl rand -base64 32)"
    if not secret.get_secret_value().startswith(_PREFIX):
        raise _refusal(f"should begin with {_PREFIX}; {advice}")
    try:
        size = len(signing_key(secret))
    except ValueError as error:
        raise _refusal(f"{error} after {_PREFIX}; {advice}") from None
    if size < MIN_SIGNING_KEY:
        raise _refusal(f"has {size} random bytes, but needs {MIN_SIGNING_KEY}; {advice}")
    return secret


def _split(value: Any) -> Any:
    """Split a text into its words, so that a variable or a file needs no brackets."""
    return value.split() if isinstance(value, str) else value


def _secret_text(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if len(text) < MIN_SECRET:
        raise _refusal(f"has {len(text)} characters, but needs {MIN_SECRET} so that it can be masked in responses")
    if not _HEADER_TEXT.fullmatch(text):
        raise _refusal("has a character that no header can carry: use printable ASCII only")
    return secret


def _proxy(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    try:
        url = URL(text)
        if not text or (
            url.scheme == "http" and url.raw_host and url.raw_path in ("", "/") and not url.raw_query_string
        ):
            return secret
    except ValueError:
        pass
    raise _refusal(
        "should be the URL of a proxy such as http://proxy.example:3128 or http://user:password@10.0.0.1:3128"
    )


def _postgres_url(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text or text.startswith(("postgresql://", "postgres://")):
        return secret
    raise _refusal("should be the URL of a database such as postgresql://user@host/database")


Network: TypeAlias = IPv4Network | IPv6Network

NetworkSetting = Annotated[Network, PlainValidator(_network), PlainSerializer(str)]
Origin = Annotated[str, AfterValidator(_origin)]
SigningSecrets = Annotated[list[Annotated[SecretStr, AfterValidator(_signing_secret)]], BeforeValidator(_split)]
SecretText = Annotated[SecretStr, AfterValidator(_secret_text)]
PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres_url)]
Proxy = Annotated[SecretStr, AfterValidator(_proxy)]
