"""Reading JSON into values: each function takes what stands there and says by name what is wrong with it."""

from __future__ import annotations

from typing import Any

from dpose.errors import DposeError


def member_of(kind: Any, value: Any, where: str) -> Any:
    """The member of an enumeration that has this value.

    Raises:
        DposeError: there is none.
    """
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(member.value for member in kind)
        raise DposeError("field-choice-unknown", f"must be one of {choices}, not {value!r}", where) from None


def object_with(values: Any, expected: set[str], where: str) -> dict[str, Any]:
    """An object with these fields and no others.

    Raises:
        DposeError: it is none.
    """
    found = object_of(values, where)
    for problem, names in (
        ("is missing", expected - set(found)),
        ("is not a known field", set(found) - expected),
    ):
        if names:
            raise DposeError("field-names-wrong", f"{min(names)} {problem}", where)
    return found


def object_of(values: Any, where: str) -> dict[str, Any]:
    """An object.

    Raises:
        DposeError: it is none.
    """
    if not isinstance(values, dict):
        raise DposeError("field-not-object", "must be an object", where)
    found: dict[str, Any] = values
    return found


def text_of(value: Any, where: str) -> str:
    """A string.

    Raises:
        DposeError: it is none.
    """
    if not isinstance(value, str):
        raise DposeError("field-not-string", f"must be a string, not {value!r}", where)
    return value


def list_of(value: Any, where: str) -> list[Any]:
    """A list.

    Raises:
        DposeError: it is none.
    """
    if not isinstance(value, list):
        raise DposeError("field-not-list", f"must be a list, not {value!r}", where)
    return value


def texts_of(value: Any, where: str) -> tuple[str, ...]:
    """A list of strings.

    Raises:
        DposeError: it is none.
    """
    return tuple(text_of(item, f"{where}[{i}]") for i, item in enumerate(list_of(value, where)))


def named_texts_of(value: Any, where: str) -> dict[str, str]:
    """An object whose values are strings.

    Raises:
        DposeError: it is none.
    """
    value = object_of(value, where)
    return {name: text_of(item, f"{where}.{name}") for name, item in value.items()}
