"""Numbers of options. Used by all commands with a range of floats."""

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """Rejects `nan`, which compares with no limit and so would turn it off."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
