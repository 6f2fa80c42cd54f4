"""Types of options that take a number, with names for help and errors; click says `INTEGER RANGE`."""

import math
from typing import Any

import click


class IntRange(click.IntRange):
    name = "integer"


class FloatRange(click.FloatRange):
    """Rejects `nan`, which compares with no limit and so would turn it off."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
