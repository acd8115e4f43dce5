"""JSON texts that are kept for long."""


def trimmed(text: bytes) -> bytes:
    """Copy what `orjson.dumps` returned, which keeps its buffer of a kilobyte or more for as long as it lives."""
    return b"".join((text, b""))
