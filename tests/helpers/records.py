"""A statement whose record of a release says something else, as a forger writes it."""

import json
from dataclasses import replace


def recorded(statement, changes=(), **more):
    """The statement with values of its record changed, by dotted names: `recorded(s, {"config.block": 8})`.

    A name that the record does not have is added.
    """
    record = json.loads(json.dumps(dict(statement.release)))
    for name, value in {**dict(changes), **more}.items():
        *path, last = name.split(".")
        values = record
        for part in path:
            values = values[part]
        values[last] = value
    return replace(statement, release=record)
