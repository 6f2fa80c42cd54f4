"""What tests of several directories share: a scripted world, real processes and servers, waiting, limits."""
