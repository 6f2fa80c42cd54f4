"""Types of options that take a number, which help and errors call so; click says `INTEGER RANGE`."""

import click


class IntRange(click.IntRange):
    name = "integer"


class FloatRange(click.FloatRange):
    name = "number"
