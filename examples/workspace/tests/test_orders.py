"""What orders and invoices promise."""

from datetime import UTC, datetime, timedelta

import pytest
from app.billing import BillingError, instalments, invoice_for, refund
from app.orders import Order, OrderError, cancel

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def order() -> Order:
    order = Order("O-1001", NOON)
    order.add("mug", 2, 1250)
    order.add("tea", 1, 899)
    return order


def test_the_same_article_at_the_same_price_is_one_line(order: Order) -> None:
    order.add("mug", 1, 1250)
    assert [(line.sku, line.quantity) for line in order.lines] == [("mug", 3), ("tea", 1)]


def test_a_negative_quantity_is_refused(order: Order) -> None:
    with pytest.raises(OrderError):
        order.add("mug", -1, 1250)


def test_an_order_can_be_cancelled_within_a_day(order: Order) -> None:
    cancel(order, NOON + timedelta(hours=24))
    assert order.status == "cancelled"


def test_after_a_day_it_is_too_late_to_cancel(order: Order) -> None:
    with pytest.raises(OrderError):
        cancel(order, NOON + timedelta(hours=24, seconds=1))


def test_tax_is_rounded_on_the_sum(order: Order) -> None:
    assert invoice_for(order).total_cents == 3399 + 646


def test_instalments_lose_no_cent() -> None:
    assert instalments(1000, 3) == [334, 333, 333]


def test_no_single_refund_exceeds_the_payment(order: Order) -> None:
    invoice = invoice_for(order)
    assert refund(invoice, 1000) == invoice.total_cents - 1000
    with pytest.raises(BillingError):
        refund(invoice, invoice.total_cents + 1)
