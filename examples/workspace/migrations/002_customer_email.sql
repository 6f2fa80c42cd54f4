-- SHOP-151: support finds an order by the customer's e-mail address.

ALTER TABLE orders ADD COLUMN customer_email text NOT NULL;

CREATE INDEX orders_customer_email_idx ON orders (customer_email);
