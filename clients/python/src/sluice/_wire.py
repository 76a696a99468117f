"""The JSON of checks and decisions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, NamedTuple

from ._types import Check, Decision, FieldError, Recorded, Settlement, SluiceError, Tier


class Question(NamedTuple):
    """An encoded check, with its key in the cache of denials."""

    body: str
    identity: str  # everything but the cost
    cost: float


class Answer(NamedTuple):
    """An answer of the server. The body is None if it is no JSON."""

    status: int
    body: Any
    retry_after: str | None


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def refuse_invalid(check: Check, hold: float | None) -> None:
    """Raises like the server, by the bounds of a Check in api/openapi.yaml, because other checks may share the
    request."""
    texts: list[tuple[str, Any, int]] = [
        ("/user_id", None if check.user_id is None else str(check.user_id), 256),
        ("/plan", check.plan, 256),
        ("/endpoint", check.endpoint, 1024),
        ("/method", check.method, 32),
        ("/ip", check.ip, 64),
    ]
    fields = [FieldError(at, wrong) for at, text, most in texts if text and (wrong := _wrong_text(text, most))]
    if not fields and check.method and not _METHOD.fullmatch(check.method):
        fields.append(FieldError("/method", "must be an HTTP method such as GET"))
    if not fields and check.ip and not _is_address(check.ip):
        fields.append(FieldError("/ip", "must be an IPv4 or IPv6 address, without port, zone or prefix length"))
    attributes = check.attributes or {}
    if len(attributes) > 16:
        fields.append(FieldError("/attributes", f"has {len(attributes)} attributes; send at most 16"))
    for name, value in attributes.items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name):
            fields.append(FieldError("/attributes", "names must have 1 to 64 letters, digits, '_', '.' and '-'"))
        elif wrong := _wrong_text(value, 256):
            fields.append(FieldError(f"/attributes/{name}", wrong))
    if not 0 <= round(check.cost, 6) <= 1e9:
        fields.append(FieldError("/cost", "must be a number from 0 to 1000000000"))
    costs = check.costs or {}
    if len({"requests", *costs}) > 8:
        fields.append(FieldError("/costs", "has too many meters; send at most 8, with requests"))
    for meter, cost in costs.items():
        if not isinstance(meter, str) or not _METER.fullmatch(meter):
            fields.append(FieldError("/costs", "meters must be a lower-case letter and up to 31 of a-z, 0-9 and '_'"))
        elif not 0 <= round(cost, 6) <= 1e9:
            fields.append(FieldError(f"/costs/{meter}", "must be a number from 0 to 1000000000"))
    if hold is not None and not 0 <= hold <= 86_400:
        fields.append(FieldError("/reserve_for", "must be 0 to 86400 seconds"))
    if fields:
        raise SluiceError("request", "The check is not valid.", fields=fields)


_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ATTRIBUTE = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_METER = re.compile(r"[a-z][a-z0-9_]{0,31}")


def _wrong_text(text: Any, most: int) -> str | None:
    """The server's error for a text of at most so many bytes, or None."""
    if not isinstance(text, str):
        return "must be a string"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "must be valid UTF-8"
    if size > most:
        return f"is {size} bytes long; at most {most} are accepted"
    return "contains the character NUL" if "\0" in text else None


def _is_address(ip: str) -> bool:
    try:
        ip_address(ip)
    except ValueError:
        return False
    return "%" not in ip


def encode(check: Check, hold: float | None = None) -> Question:
    """Encodes a check. A hold, in seconds, reserves; 0 is the server's default."""
    named: dict[str, Any] = {}
    if check.user_id is not None and check.user_id != "":
        named["user_id"] = str(check.user_id)
    if check.plan:
        named["plan"] = check.plan
    if check.endpoint:
        named["endpoint"] = check.endpoint
    if check.method:
        named["method"] = check.method
    if check.ip:
        named["ip"] = check.ip
    if check.attributes:
        named["attributes"] = dict(sorted(check.attributes.items()))
    cost = tokens(check.cost)
    more: dict[str, Any] = {}
    if check.costs:
        named["costs"] = {"requests": cost, **amounts(check.costs)}  # a denial is for the same costs
    elif cost != 1:
        more["cost"] = cost
    identity = _dumps(named)
    if hold is not None:
        more["reserve"] = True
    if hold:
        more["reserve_for"] = math.ceil(hold)
    return Question(_dumps({**named, **more}) if more else identity, identity, cost)


def encode_record(check: Check, cost: float, id: str | None) -> str:
    record: dict[str, Any] = {**json.loads(encode(replace(check, costs={})).identity), "record": True}
    if check.costs:
        record["costs"] = {"requests": tokens(cost), **amounts(check.costs)}
    else:
        record["cost"] = tokens(cost)
    return _dumps({**record, "record_id": id} if id else record)


def amounts(costs: Mapping[str, float]) -> dict[str, float]:
    """Rounds costs by meter, in the order of their names."""
    return {meter: tokens(cost, f"/costs/{meter}") for meter, cost in sorted(costs.items())}


def tokens(amount: float, pointer: str = "/cost") -> float:
    if not math.isfinite(amount):
        error = FieldError(pointer, f"must be a number; it is {amount}")
        raise SluiceError("request", "The check is not valid.", fields=[error])
    return round(amount, 6)


def encode_batch(questions: list[Question]) -> str:
    return '{"checks":[' + ",".join(question.body for question in questions) + "]}"


def decode_check(answer: Answer) -> Decision:
    decision = _decode(answer.body, answer.status)
    if decision is not None:
        return decision
    body = answer.body
    if answer.status == 429 and isinstance(body, dict) and isinstance(body.get("type"), str):
        # Reservations are exhausted.
        reason = body["type"].rpartition(":")[2].replace("-", "_")
        seconds = (answer.retry_after or "")[:9]  # 30 years are enough
        is_number = seconds.isascii() and seconds.isdigit()
        return Decision(False, 429, reason, retry_after=max(1, int(seconds)) if is_number else 1)
    raise problem(answer)


def decode_batch(answer: Answer, checks: int) -> list[Decision]:
    body = answer.body
    results = body.get("results") if answer.status == 200 and isinstance(body, dict) else None
    if not isinstance(results, list):
        raise problem(answer)
    decisions = []
    for result in results:
        decision = _decode(result, result.get("status") if isinstance(result, dict) else 0)
        if decision is not None:
            decisions.append(decision)
    if len(decisions) != checks or len(results) != checks:
        raise SluiceError("protocol", "The batch has other results than checks.", status=answer.status)
    return decisions


def decode_settlement(body: Any) -> Settlement:
    try:
        if isinstance(body["settled"], bool):
            costs = body.get("charged_costs") or {}
            return Settlement(
                body["settled"],
                _number(body, "charged") or 0,
                _bool(body, "extended"),
                {meter: _number(costs, meter) or 0 for meter in costs},
                _bool(body, "denied"),
            )
    except (KeyError, TypeError):  # it is no object, or a member has another type
        pass
    raise problem(Answer(200, None, None))


def decode_recorded(body: Any) -> Recorded:
    """A server that does not know records has decided a check."""
    try:
        if isinstance(body["recorded"], bool):
            charged = {tier["rule_id"]: _number(tier, "charged") or 0 for tier in body["tiers"]}
            return Recorded(body["recorded"], {rule: amount for rule, amount in charged.items() if amount > 0})
    except (KeyError, TypeError):  # it is no object, or a member has another type
        pass
    raise problem(Answer(200, None, None))


def decode_report(body: Any) -> bool:
    try:
        return bool(_number(body, "accepted"))
    except (AttributeError, TypeError):
        raise problem(Answer(200, None, None)) from None


def _decode(body: Any, status: Any) -> Decision | None:
    """Returns None for anything but a decision that fits the status."""
    if not isinstance(body, dict):
        return None
    allowed = body.get("allowed")
    if not (allowed is True and status == 200 or allowed is False and status in (429, 503)):
        return None
    try:
        return Decision(
            allowed,
            status,
            _text(body, "reason"),
            _text(body, "plan"),
            _seconds(body, "retry_after_ms"),
            _seconds(body, "delay_ms") or 0,
            _number(body, "limit"),
            _number(body, "remaining"),
            _seconds(body, "reset_after_ms"),
            _text(body, "violated_tier"),
            _text(body, "violated_rule"),
            _number(body, "violated_rule_id"),
            [_decode_tier(tier) for tier in _list(body, "tiers")],
            _text(body, "reservation"),
            body.get("degraded") is True,
            retry_jitter_percent=_number(body, "retry_jitter_percent") or 0,
        )
    except (AttributeError, TypeError):  # a member has another type
        return None


def _decode_tier(tier: Any) -> Tier:
    return Tier(
        _number(tier, "rule_id") or 0,
        _text(tier, "name") or "",
        _text(tier, "scope") or "",
        _text(tier, "key_pattern") or "",
        _text(tier, "mode") or "",
        tier.get("allowed") is True,
        _number(tier, "limit"),
        _number(tier, "remaining"),
        _seconds(tier, "retry_after_ms"),
        _seconds(tier, "reset_after_ms"),
        _seconds(tier, "window_ms"),
        _seconds(tier, "more_after_ms"),
        _text(tier, "meter"),
    )


def _text(body: Any, name: str) -> Any:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(name)


def _bool(body: Any, name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise TypeError(name)


def _list(body: Any, name: str) -> list[Any]:
    value = body.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise TypeError(name)


def _number(body: Any, name: str) -> Any:
    """Refuses NaN and numbers that no double holds."""
    value = body.get(name)
    if value is None or isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e18:
        return value
    raise TypeError(name)


def _seconds(body: Any, name: str) -> float | None:
    ms: float | None = _number(body, name)
    return None if ms is None else ms / 1000


def problem(answer: Answer) -> SluiceError:
    status, body = answer.status, answer.body
    if not isinstance(body, dict) or not isinstance(body.get("type"), str) or status < 400:
        if status >= 500:
            return SluiceError("unavailable", "The server failed.", status=status)
        return SluiceError("protocol", "This is no answer of a Sluice server; is the URL right?", status=status)
    detail = str(body.get("detail") or body.get("title") or "")
    errors = body.get("errors")
    fields = [
        FieldError(str(error.get("pointer")), str(error.get("detail")))
        for error in (errors if isinstance(errors, list) else [])
        if isinstance(error, dict)
    ]
    if status in (401, 403):
        kind = "key"
    elif status >= 500 or status in (408, 429):
        kind = "unavailable"
    elif status in (400, 413, 422):
        kind = "request"
    else:
        kind = "protocol"
    return SluiceError(
        kind,  # type: ignore[arg-type]
        detail,
        status=status,
        type=body["type"],
        request_id=str(body.get("request_id") or ""),
        fields=fields,
    )


def named(error: SluiceError, position: int) -> SluiceError | None:
    """The part of a batch's error about one of its checks, or None."""
    prefix = f"/checks/{position}/"
    fields = [
        FieldError(pointer[len(prefix) - 1 :], detail)
        for pointer, detail in error.fields
        if f"{pointer}/".startswith(prefix)
    ]
    if not fields:
        return None
    return SluiceError(
        "request",
        "The check is not valid.",
        status=error.status,
        type=error.type,
        request_id=error.request_id,
        fields=fields,
    )
