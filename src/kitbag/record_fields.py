"""Names of fields in stored records, separate from names in code: renaming a field in code changes no stored file.

Used by every module that stores values in the journal or in a file and reads them back.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class RecordFields(Generic[T]):
    """`kind` is a NamedTuple or a msgspec.Struct."""

    def __init__(self, kind: type[T], *same: str, not_stored: tuple[str, ...] = (), **renamed: str) -> None:
        """`same`: fields stored under their own name. `renamed`: field="stored name". `not_stored`: fields with
        defaults that a record does not need."""
        self._make: Callable[..., T] = kind
        self._names = {name: name for name in same} | renamed
        fields = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
        wrong = {*self._names, *not_stored} ^ {*fields}
        if wrong:
            raise TypeError(f"{kind.__name__}: list each field exactly once, and nothing else: {sorted(wrong)}")

    def write(self, value: T) -> dict[str, Any]:
        return {name: getattr(value, field) for field, name in self._names.items()}

    def known_fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Constructor arguments for the fields that are present; a record of an earlier version may lack some."""
        return {field: body[name] for field, name in self._names.items() if name in body}

    def read(self, body: Mapping[str, Any], *, exact: bool = False) -> T:
        """Raises TypeError if a field without a default is missing and, if `exact`, for unknown names."""
        if exact and not set(self._names.values()) >= set(body):
            raise TypeError("the record has fields unknown to this version")
        return self._make(**self.known_fields(body))
