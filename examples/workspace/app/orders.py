"""Orders: their lines, what they add up to, and whether they can still be cancelled."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

CANCEL_WINDOW = timedelta(hours=24)


class OrderError(Exception):
    """The order can't do what was asked of it."""


@dataclass
class Line:
    sku: str
    quantity: int
    unit_cents: int

    @property
    def cents(self) -> int:
        return self.quantity * self.unit_cents


@dataclass
class Order:
    order_id: str
    placed_at: datetime
    lines: list[Line] = field(default_factory=list)
    status: str = "placed"

    def add(self, sku: str, quantity: int, unit_cents: int) -> None:
        """Add a line; the same article at the same price is counted together."""
        if quantity < 0:
            raise OrderError(f"quantity of {sku} must be at least 1")
        for line in self.lines:
            if (line.sku, line.unit_cents) == (sku, unit_cents):
                line.quantity += quantity
                return
        self.lines.append(Line(sku, quantity, unit_cents))

    @property
    def subtotal_cents(self) -> int:
        return sum(line.cents for line in self.lines)


def cancel(order: Order, now: datetime) -> None:
    """Cancel an order that has not been shipped, within a day of placing it."""
    # TODO: SHOP-139, let support extend the day
    if order.status != "placed":
        raise OrderError(f"{order.order_id} is {order.status} and can't be cancelled")
    if now - order.placed_at > CANCEL_WINDOW:
        raise OrderError(f"{order.order_id} was placed more than a day ago")
    order.status = "cancelled"
