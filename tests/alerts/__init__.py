"""Outlooks, alert rules, and getting the word out."""
