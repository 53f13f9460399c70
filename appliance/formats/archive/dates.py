"""When a mail was written: a date is right, or it is not read.

    Mon, 1 Mar 2004 10:00:00 +0100 (CET)     RFC 5322, section 3.3; the weekday may be left out
    1 Mar 04 11:13:27 PM                     as older programs wrote it: years of two digits, halves
    Mon Mar  1 10:00:00 2004 +0100           asctime, with a zone before or behind the year
    2004-03-01T10:00:00+01:00                ISO 8601

A zone is an offset or a name that means one offset everywhere where mail uses it; with any other
name (IST is India, Israel and Ireland) nobody knows when it was, and nothing is guessed. A comment
explains an offset; without one it is the zone, and has to be known as such: `10:00:00 (CEST)`.
Without a zone it is UTC, as separators of mail folders are. A month is a whole name, in English or
a language of `months`; what weekday is named is not looked at. A leap second is the second after.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from appliance.formats.archive.entry import microseconds
from appliance.formats.archive.months import month_of

_SIZE_MAX = 1000  # of a text that may be a date
_TIME = r"(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
_HALF = r"(?: ?(?P<half>[ap])\.?m\.?)?"
_ZONE = r"(?: ?(?P<zone>[+-]\d{1,2}:?\d\d|(?:gmt|utc?)[+-]\d{1,2}(?::?\d\d)?|[a-z]{1,5}))?"
_WEEKDAY = r"(?:[a-z]{3,9}\.?,? )?"
_COMMENT = re.compile(r"\((?P<says>[^()]{0,100})\)")
_COMMENT_OF_DAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}$", re.IGNORECASE)
_ZONE_WHOLE = re.compile(rf"{_ZONE}$", re.IGNORECASE | re.ASCII)
_DAY = r"(?P<day>\d{1,2})"
_WORD = r"(?P<month>[a-z]{3,10})\.?"
_YEAR = r"(?P<year>\d{4})"
_CLOCK = rf"{_TIME}{_HALF}{_ZONE}"
_RFC = rf"{_WEEKDAY}{_DAY}[ -]{_WORD},?[ -](?P<year>\d{{2,4}}),?(?: |T){_CLOCK}"
_ASCTIME = rf"{_WEEKDAY}{_WORD} {_DAY},? {_CLOCK} {_YEAR}"
_ASCTIME_ZONE_LAST = rf"{_WEEKDAY}{_WORD} {_DAY},? {_TIME}{_HALF} {_YEAR}{_ZONE}"
_MONTH_FIRST = rf"{_WEEKDAY}{_WORD} {_DAY}, {_YEAR},? {_CLOCK}"
_ISO = rf"{_YEAR}-(?P<month>\d\d)-(?P<day>\d\d)[ T]{_TIME}(?P<half>$)?{_ZONE}"
_FORMS = [
    re.compile(form + r"$", re.IGNORECASE | re.ASCII)
    for form in (_RFC, _ASCTIME, _ASCTIME_ZONE_LAST, _MONTH_FIRST, _ISO)
]
# Hours east of Greenwich.
_NAMED = {
    "ut": 0, "utc": 0, "gmt": 0, "z": 0, "wet": 0, "west": 1, "cet": 1, "cest": 2, "met": 1,
    "mez": 1, "mest": 2, "mesz": 2, "eet": 2, "eest": 3, "msk": 3, "msd": 4,
    "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7,
    "akst": -9, "akdt": -8, "hst": -10, "jst": 9, "kst": 9, "aest": 10, "aedt": 11, "awst": 8,
    "nzst": 12, "nzdt": 13,
}  # fmt: skip
_YEARS = range(1970, 9999)


def instant(text: str) -> int | None:
    """Microseconds since the epoch; None when this is no date, or could be several."""
    if len(text) > _SIZE_MAX:
        return None
    found = _match(text)
    if found is None:
        return None
    said = [" ".join(each["says"].split()) for each in _COMMENT.finditer(text)]
    return _time_us(found, [each for each in said if each and not _COMMENT_OF_DAY.match(each)])


def stamped(text: str) -> bool:
    """Whether a program wrote this as a date, though it may be none or name a zone of nobody's."""
    found = _match(text) if len(text) <= _SIZE_MAX else None
    if found is None or not (found["month"].isdigit() or month_of(found["month"])):
        return False
    zone = found["zone"] or ""
    return not zone.isalpha() or zone.isupper() or zone.lower() in _NAMED


def _match(text: str) -> re.Match[str] | None:
    plain = " ".join(_COMMENT.sub(" ", text).split())
    return next((found for form in _FORMS if (found := form.match(plain))), None)


def _time_us(found: re.Match[str], comments: list[str]) -> int | None:
    zone = _zone(found["zone"]) if found["zone"] else _zone_of(comments)
    year = _year(found["year"])
    hour, second = _hour(found), int(found["second"] or 0)
    if zone is None or year not in _YEARS or hour is None or second > 60:
        return None
    month = found["month"].lower()
    number = int(month) if month.isdigit() else month_of(month)
    try:
        minute = datetime(year, number, int(found["day"]), hour, int(found["minute"]), tzinfo=zone)
    except ValueError:
        return None
    part = timedelta(seconds=second, microseconds=int((found["part"] or "0").ljust(6, "0")[:6]))
    time_us = microseconds(minute + part)
    return time_us if time_us >= 0 else None


def _year(text: str) -> int:
    """Two and three digits as RFC 5322, section 4.3, has them."""
    year = int(text)
    if len(text) == 2:
        return year + (2000 if year < 50 else 1900)
    return year + 1900 if len(text) == 3 else year


def _hour(found: re.Match[str]) -> int | None:
    hour, half = int(found["hour"]), (found["half"] or "").lower()
    if not half:
        return hour if hour < 24 else None
    if hour > 12:  # `23:13 PM` says one thing twice
        return hour if half == "p" and hour < 24 else None
    if not hour:
        return None
    return hour % 12 + (12 if half == "p" else 0)


def _zone_of(comments: list[str]) -> timezone | None:
    """The zone that stands in comments alone; UTC when there are none."""
    if not comments:
        return UTC
    (first, *others) = (_zone(each) if _ZONE_WHOLE.match(each) else None for each in comments)
    return first if all(other == first for other in others) else None


def _zone(text: str) -> timezone | None:
    """None for one that nobody knows."""
    name = re.sub(r"^(?:gmt|utc?)(?=[+-])", "", text.lower())
    if name[0] not in "+-":
        hours = _NAMED.get(name)
        return None if hours is None else timezone(timedelta(hours=hours))
    digits = name[1:].replace(":", "")
    if len(digits) <= 2:
        hours, minutes = int(digits), 0
    else:
        hours, minutes = int(digits[:-2]), int(digits[-2:])
    if hours > 14 or minutes > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if name[0] == "-" else offset)
