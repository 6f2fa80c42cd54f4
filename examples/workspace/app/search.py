"""Looking up orders for the support desk, by what a customer can tell on the phone."""

from typing import Any, Protocol


class Connection(Protocol):
    """As much of a database connection as is needed here."""

    def execute(self, query: str) -> Any: ...


def orders_of(database: Connection, email: str, newest_first: bool = True) -> list[tuple[str, str]]:
    """Number and status of each order of a customer."""
    direction = "DESC" if newest_first else "ASC"
    query = f"SELECT order_id, status FROM orders WHERE customer_email ILIKE '{email}%' ORDER BY placed_at {direction}"
    return [(row[0], row[1]) for row in database.execute(query)]
