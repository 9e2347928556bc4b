"""The `format` keyword, as regular expressions that match the whole text (spec/api.md §8.1).

Each matches only texts that are valid by its standard. Where a standard allows rare spellings (a lower-case "t" in a
timestamp, an IPv4 tail of an IPv6 address, a leap second) they are left out: a model has no need of them.
"""

from __future__ import annotations

_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+\-]{_HOUR_MINUTE})"

_CLOCK = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION = rf"P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:{_CLOCK})?|{_CLOCK})"

# Lengths are kept by few long labels or many short ones, so that no name is longer than 253 characters.
_LONG_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_SHORT_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,22}[A-Za-z0-9])?"
_HOSTNAME = rf"(?:{_LONG_LABEL}(?:\.{_LONG_LABEL}){{0,2}}|{_SHORT_LABEL}(?:\.{_SHORT_LABEL}){{0,8}})"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]"
_EMAIL = rf"{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{0,2}}@{_SHORT_LABEL}(?:\.{_SHORT_LABEL}){{1,6}}"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = r"[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        rf"(?:{_GROUP}:){{1,7}}:",
        *(rf"(?:{_GROUP}:){{1,{7 - tail}}}(?::{_GROUP}){{1,{tail}}}" for tail in range(1, 7)),
        rf":(?::{_GROUP}){{1,7}}",
        "::",
    ]
)
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

_PATH = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_USER = r"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})+@)?"
_QUERY = rf"(?:\?(?:{_PATH}|[/?])*)?(?:#(?:{_PATH}|[/?])*)?"
_URI = (
    r"[A-Za-z][A-Za-z0-9+\-.]*:"
    rf"(?://{_USER}(?:{_HOSTNAME}|\[(?:{_IPV6})\])(?::[0-9]{{1,5}})?(?:/{_PATH}*)*|{_PATH}+(?:/{_PATH}*)*){_QUERY}"
)

STRING_FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": f"(?:{_IPV6})",
    "uuid": _UUID,
    "uri": _URI,
}

# The number formats of OpenAPI, as closed intervals.
NUMBER_FORMATS: dict[str, tuple[int, int]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

UNBOUNDED_FORMATS = ("float", "double")  # how a number is stored: every JSON number has a nearest one
