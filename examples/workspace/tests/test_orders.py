"""What orders promise."""

import unittest
from datetime import UTC, datetime, timedelta

from app.orders import Order, OrderError, cancel

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Orders(unittest.TestCase):
    def setUp(self) -> None:
        self.order = Order("O-1001", NOON)
        self.order.add("mug", 2, 1250)
        self.order.add("tea", 1, 899)

    def test_the_same_article_at_the_same_price_is_one_line(self) -> None:
        self.order.add("mug", 1, 1250)
        lines = [(line.sku, line.quantity) for line in self.order.lines]
        self.assertEqual(lines, [("mug", 3), ("tea", 1)])

    def test_a_negative_quantity_is_refused(self) -> None:
        with self.assertRaises(OrderError):
            self.order.add("mug", -1, 1250)

    def test_an_order_can_be_cancelled_within_a_day(self) -> None:
        cancel(self.order, NOON + timedelta(hours=24))
        self.assertEqual(self.order.status, "cancelled")

    def test_after_a_day_it_is_too_late_to_cancel(self) -> None:
        with self.assertRaises(OrderError):
            cancel(self.order, NOON + timedelta(hours=24, seconds=1))
