"""The composition root: the only place that names concrete classes and ties the layers together."""
