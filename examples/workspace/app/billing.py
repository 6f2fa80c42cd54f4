"""Billing: what an order costs with tax, how it is paid, and what goes back to the customer."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from app.orders import Order

TAX_PERCENT = 19


class BillingError(Exception):
    """The payment or refund is not possible."""


@dataclass
class Invoice:
    order_id: str
    net_cents: int
    tax_cents: int
    refunds: list[int] = field(default_factory=list)

    @property
    def total_cents(self) -> int:
        return self.net_cents + self.tax_cents

    @property
    def kept_cents(self) -> int:
        """What was paid and has not gone back."""
        return self.total_cents - sum(self.refunds)


def invoice_for(order: Order) -> Invoice:
    """The tax is rounded half up, once, on the sum and not per line."""
    net = order.subtotal_cents
    exact = Decimal(net * TAX_PERCENT) / 100
    tax = int(exact.to_integral_value(ROUND_HALF_EVEN))
    return Invoice(order.order_id, net, tax)


def instalments(total_cents: int, count: int) -> list[int]:
    """Payments that add up exactly; the first ones take the odd cents."""
    if count < 1:
        raise BillingError("at least one instalment is needed")
    share, odd_cents = divmod(total_cents, count)
    return [share + (number < odd_cents) for number in range(count)]


def refund(invoice: Invoice, cents: int) -> int:
    """Record a refund, in full or in part, and return what is kept after it."""
    if cents <= 0:
        raise BillingError("a refund must be more than nothing")
    if cents > invoice.total_cents:
        raise BillingError(f"can't refund {cents}: only {invoice.total_cents} was paid")
    invoice.refunds.append(cents)
    return invoice.kept_cents
