"""Kitbag's version. Written here, because reading it from the installed package imports an e-mail parser and more."""

from typing import Final

__version__: Final = "0.1.0"
