"""The engine: documents in, cycles run, decisions out."""
