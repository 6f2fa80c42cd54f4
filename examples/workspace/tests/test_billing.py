"""What invoices, instalments, refunds and vouchers promise."""

import unittest
from datetime import UTC, datetime

from app.billing import BillingError, instalments, invoice_for, refund
from app.orders import Order
from app.vouchers import VoucherError, discount


def order_of(*prices: int) -> Order:
    order = Order("O-1001", datetime(2026, 3, 2, 12, 0, tzinfo=UTC))
    for number, cents in enumerate(prices):
        order.add(f"article-{number}", 1, cents)
    return order


class Taxes(unittest.TestCase):
    def test_tax_is_rounded_on_the_sum(self) -> None:
        self.assertEqual(invoice_for(order_of(2500, 899)).tax_cents, 646)

    def test_half_a_cent_goes_up(self) -> None:
        self.assertEqual(invoice_for(order_of(150)).tax_cents, 29)  # 28.5


class Vouchers(unittest.TestCase):
    def test_half_a_cent_goes_up(self) -> None:
        self.assertEqual(discount(order_of(1250), 1), 13)  # 12.5

    def test_a_voucher_takes_off_half_at_most(self) -> None:
        self.assertEqual(discount(order_of(1000), 50), 500)
        with self.assertRaises(VoucherError):
            discount(order_of(1000), 51)


class Payments(unittest.TestCase):
    def test_instalments_lose_no_cent(self) -> None:
        self.assertEqual(instalments(1000, 3), [334, 333, 333])

    def test_no_single_refund_exceeds_the_payment(self) -> None:
        invoice = invoice_for(order_of(2500, 899))
        self.assertEqual(refund(invoice, 1000), invoice.total_cents - 1000)
        with self.assertRaises(BillingError):
            refund(invoice, invoice.total_cents + 1)
