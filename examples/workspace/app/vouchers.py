"""Vouchers: what a percentage takes off an order."""

from decimal import ROUND_HALF_EVEN, Decimal

from app.orders import Order

MOST_PERCENT = 50


class VoucherError(Exception):
    """The voucher is not valid for this order."""


def discount(order: Order, percent: int) -> int:
    """The cents that a voucher takes off, rounded half up."""
    if not 1 <= percent <= MOST_PERCENT:
        raise VoucherError(f"a voucher takes off 1 to {MOST_PERCENT} percent, not {percent}")
    # TODO: SHOP-150, vouchers for one article only
    off = Decimal(order.subtotal_cents * percent) / 100
    return int(off.to_integral_value(ROUND_HALF_EVEN))
