"""HTTP requests to model providers: a direct client without heavy imports, and one for proxies."""
