"""Values of different types never compare equal, even if their fields hold the same: a delta of text is no thinking."""

import inspect
from types import ModuleType
from typing import Any

import pytest

import kitbag.chat.terminal.forms
import kitbag.chat.trust_prompt
import kitbag.chat.ui
import kitbag.dialogs.form
import kitbag.events
import kitbag.ledger
import kitbag.messages
import kitbag.views.blocks
from kitbag.events import TextDelta, ThinkingDelta

MODULES = (
    kitbag.events,
    kitbag.messages,
    kitbag.ledger,
    kitbag.chat.ui,
    kitbag.chat.trust_prompt,
    kitbag.chat.terminal.forms,
    kitbag.dialogs.form,
    kitbag.views.blocks,
)


def fields_of(kind: type) -> tuple[str, ...]:
    return getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())


def value_types(module: ModuleType) -> list[type]:
    own = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__]
    return [kind for kind in own if fields_of(kind)]


KINDS = [kind for module in MODULES for kind in value_types(module)]


def filled(kind: type) -> Any:
    """A value whose fields all hold the same."""
    return kind(**dict.fromkeys(fields_of(kind), "x"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_value_equals_only_values_of_its_own_type(kind: type) -> None:
    value = filled(kind)
    assert value == filled(kind)
    assert hash(value) == hash(filled(kind))
    assert [other.__name__ for other in KINDS if other is not kind and value == filled(other)] == []
    assert value != ("x",) * len(fields_of(kind))


def test_all_events_messages_and_user_actions_are_compared() -> None:
    assert {
        "TextDelta",
        "RunEnded",
        "Text",
        "Usage",
        "Entry",
        "KeyPressed",
        "ExitRequested",
        "FormAnswer",
        "TrustAnswer",
    } <= {kind.__name__ for kind in KINDS}
    assert TextDelta("x") == TextDelta("x") != ThinkingDelta("x")
