"""Kueue's admission semantics as a pure engine: documents in, decisions out; see ``engine``."""
