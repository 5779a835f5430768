"""How single values look in the output formats."""

from __future__ import annotations

import base64
import datetime
import json
import math

DIGITS = 6


def rounded(value: str | float | None) -> float | None:
    """The number with 6 decimals; None for None, NaN and infinities, which JSON and SQL have no place for."""
    number = math.nan if value is None else float(value)
    return round(number, DIGITS) if math.isfinite(number) else None


def cell_text(value: object) -> str:
    """A value of another format as a CSV cell or a text.

    None is empty, true and false as in JSON, numbers in shortest form, dates and times ISO 8601, bytes
    base64, lists and structures JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | dict | list | tuple):
        return json_text(value)
    if isinstance(value, float):
        return repr(value)
    return _text_of(value)


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """Strict JSON: what JSON has no form for is written as `json_ready` says."""
    return json.dumps(json_ready(value), ensure_ascii=ascii_only, allow_nan=False)


def json_ready(value: object) -> object:
    """The value in JSON's types.

    NaN and infinities become null, dates and times ISO 8601, bytes base64, anything else its text.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return _text_of(value)


def _text_of(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
