-- Orders and their lines. Amounts are integer cents, times are UTC.

CREATE TABLE orders (
    order_id    text        PRIMARY KEY,
    customer_id bigint      NOT NULL,
    placed_at   timestamptz NOT NULL,
    status      text        NOT NULL DEFAULT 'placed',
    CONSTRAINT orders_status_known CHECK (status IN ('placed', 'shipped', 'cancelled'))
);

CREATE INDEX orders_customer_id_idx ON orders (customer_id);

CREATE TABLE order_lines (
    order_id   text    NOT NULL REFERENCES orders (order_id),
    sku        text    NOT NULL,
    quantity   integer NOT NULL,
    unit_cents integer NOT NULL,
    PRIMARY KEY (order_id, sku, unit_cents),
    CONSTRAINT order_lines_quantity_positive CHECK (quantity > 0)
);
