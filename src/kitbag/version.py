"""Kitbag's version. Written here, because reading it from the installed package imports an e-mail parser and more."""

__version__ = "0.1.0"
