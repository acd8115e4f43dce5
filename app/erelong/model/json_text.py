"""JSON texts that stay in memory."""


def trimmed(text: bytes) -> bytes:
    """Copy a result of `orjson.dumps`, which otherwise holds on to a buffer of a kilobyte or more."""
    return b"".join((text, b""))
