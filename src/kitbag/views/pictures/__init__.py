"""Pictures as SVG: values in, text out. No dependency, no script, all text escaped."""
