"""Exports: asked for, planned, written, expired."""
