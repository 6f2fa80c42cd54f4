"""The composition root: ties the layers together and does what several interfaces share."""
