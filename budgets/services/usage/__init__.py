"""The ledger of usage: intervals stored, metered, added up, reconciled."""
