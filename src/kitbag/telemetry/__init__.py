"""OpenTelemetry: events of runs as spans and metrics, by the semantic conventions for generative AI."""
