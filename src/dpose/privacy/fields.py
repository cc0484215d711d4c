"""How statements are written as JSON: numbers as strings that read back exactly, and mistakes told in one line.

    @statement_part
    class AuditResult(StatementPart):
        what: Text
        epsilon: Decimal

    result.to_dict()                        # {"what": ..., "epsilon": "0.12"}
    AuditResult.read(values, "audits[0]")   # the same again, or a DposeError that names the field

A class is a frozen pydantic dataclass; its JSON Schema follows from its fields and docstring (`schema_of`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields
from fractions import Fraction
from functools import cache, wraps
from typing import Annotated, Any, Self, TypeVar, dataclass_transform

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from dpose.errors import DposeError
from dpose.privacy.ranges import check_steps, exact_text, parse_decimal, parse_exact

T = TypeVar("T")
JSON = "json"
"""The context of values that were read from JSON: numbers must be strings there, and no field may be missing."""
NUMBER = r"^-?\d+(\.\d+)?(e[+-]?\d+)?$"
EXACT = rf"{NUMBER}|^-?\d+/\d+$"
"""How numbers are written: decimal, or decimal or rational."""
CODES = {
    "missing": "field-names-wrong",
    "unexpected_keyword_argument": "field-names-wrong",
    "string_type": "field-not-string",
    "tuple_type": "field-not-list",
    "dict_type": "field-not-object",
    "dataclass_type": "field-not-object",
    "enum": "field-choice-unknown",
    "literal_error": "field-choice-unknown",
    "union_tag_invalid": "event-type-unknown",
    "union_tag_not_found": "event-type-missing",
}
"""Our codes for pydantic's kinds of mistakes; "field-wrong" for any other."""


def _decimal(value: Any, info: ValidationInfo) -> float:
    if info.context == JSON or isinstance(value, str):
        return float(_in_place(parse_decimal, value))
    return float(value)


def _exact(value: Any, info: ValidationInfo) -> Fraction:
    if info.context == JSON or isinstance(value, str):
        return Fraction(_in_place(parse_exact, value))
    if not isinstance(value, Fraction):
        raise DposeError("fraction-not-positive", f"must be a positive fraction, not {value!r}")
    return value


def _cost(value: Any, info: ValidationInfo) -> float:
    return math.inf if value == "inf" else _decimal(value, info)


def _steps(value: Any) -> int:
    check_steps(value)
    return int(value)


def _in_place(parse: Any, value: Any) -> Any:
    """`parse` with its error where pydantic knows the field."""
    try:
        return parse(value, "")
    except DposeError as error:
        raise PydanticCustomError(error.code, "{what}", {"what": error.what}) from error


def _is_decimal(value: str) -> str:
    _in_place(parse_decimal, value)
    return value


def _encodes(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError("text-not-utf8", "is no text in UTF-8; write it with letters") from error
    return value


Decimal = Annotated[
    float,
    PlainValidator(_decimal),
    PlainSerializer(lambda value: repr(float(value)), return_type=str),
    WithJsonSchema({"type": "string", "pattern": NUMBER}),
]
"""A float; in JSON a decimal number in a string."""
Exact = Annotated[
    Fraction,
    PlainValidator(_exact),
    PlainSerializer(exact_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": EXACT}),
]
"""A fraction; in JSON a decimal number or a fraction in a string."""
Cost = Annotated[
    float,
    PlainValidator(_cost),
    PlainSerializer(lambda value: repr(float(value)), return_type=str),
    WithJsonSchema({"type": "string", "pattern": rf"{NUMBER}|^inf$"}),
]
"""A `Decimal` that may be infinite: "inf"."""
Steps = Annotated[int, PlainValidator(_steps), WithJsonSchema({"type": "integer", "minimum": 1})]
"""A number of releases, at least 1."""
Pixels = Annotated[StrictInt, Field(ge=0)]
"""A number of pixels; 0 for all of them."""
Text = Annotated[StrictStr, AfterValidator(_encodes)]
DecimalText = Annotated[Text, AfterValidator(_is_decimal), WithJsonSchema({"type": "string", "pattern": NUMBER})]
"""A decimal number that stays as it was written."""
Positive = Annotated[StrictInt, Field(ge=1)]
Count = Annotated[StrictInt, WithJsonSchema({"type": "integer", "minimum": 1})]
"""A positive whole number that the class itself checks."""


def optional(*, default: Any) -> Any:
    """A field that is left out of the JSON where it is empty."""
    return Field(default=default, exclude_if=lambda value: not value)


class StatementPart:
    """What all parts of a statement share: of JSON, every field that is not `optional` is there."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any, info: ValidationInfo) -> Any:
        if info.context == JSON and isinstance(values, Mapping):
            missing = sorted(set(_required(cls)) - set(values))
            if missing:
                raise PydanticCustomError("field-names-wrong", "{name} is missing", {"name": missing[0]})
        return values

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        kind: Any = type(self)
        found: dict[str, Any] = _adapter(kind).dump_python(self, mode="json")
        return found

    @classmethod
    def read(cls, values: Any, where: str = "") -> Self:
        """The value that `to_dict` wrote.

        Args:
            values: As they stand in JSON.
            where: What an error names as the place.

        Raises:
            DposeError: a field is missing, unknown, of the wrong type or out of range; names it.
        """
        found: Self = read(cls, values, where)
        return found


def _required(kind: Any) -> list[str]:
    """Fields that are always in the JSON of a class."""
    known = kind.__pydantic_fields__
    return [f.name for f in fields(kind) if known[f.name].exclude_if is None]


def _say_required(schema: dict[str, Any], kind: Any) -> None:
    schema["required"] = _required(kind)
    schema["additionalProperties"] = False
    schema["description"] = (kind.__doc__ or "").strip().partition("\n")[0]


@dataclass_transform(frozen_default=True, field_specifiers=(field, optional))
def statement_part(kind: type[T]) -> type[T]:
    """Make a frozen pydantic dataclass of a class: its values are checked, and it can be written as JSON.

    Raises:
        DposeError: by the class, whose fields are given values of other types.
    """
    config = ConfigDict(extra="forbid", json_schema_extra=_say_required, arbitrary_types_allowed=True)
    made: Any = dataclass(frozen=True, config=config)(kind)
    checked = made.__init__

    @wraps(checked)
    def init(self: Any, *given: Any, **named: Any) -> None:
        try:
            checked(self, *given, **named)
        except ValidationError as error:
            raise _in_one_line(error) from error

    made.__init__ = init
    found: type[T] = made
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: Any, values: Any, where: str = "") -> Any:
    """The value of a class, or of a union of classes, that `StatementPart.to_dict` wrote; raises as `read` there."""
    try:
        return _adapter(kind).validate_python(values, context=JSON)
    except ValidationError as error:
        raise _in_one_line(error, where) from error
    except DposeError as error:
        raise DposeError(error.code, error.what, error.where or where, error.fix) from error


def _in_one_line(error: ValidationError, where: str = "") -> DposeError:
    """The first mistake that pydantic found."""
    first = error.errors(include_url=False)[0]
    code = CODES.get(first["type"], first["type"] if "-" in first["type"] else "field-wrong")
    return DposeError(code, _notes(first), _place(where, first["loc"]))


def _notes(problem: Any) -> str:
    if problem["type"] == "unexpected_keyword_argument":
        return "is not a known field"
    given = f", not {problem['input']!r:.80}" if "-" not in problem["type"] else ""
    return f"{problem['msg'][:1].lower()}{problem['msg'][1:]}{given}"


def _place(where: str, path: tuple[str | int, ...]) -> str:
    for part in path:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    return where


def schema_of(kind: Any, title: str) -> dict[str, Any]:
    """The JSON Schema of what `StatementPart.to_dict` makes of a class (draft 2020-12)."""
    found = _adapter(kind).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": title}
