"""Accounts, flavors, pools and capacity."""
