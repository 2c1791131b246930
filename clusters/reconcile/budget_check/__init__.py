"""Answers the portal's AdmissionCheck on a manager, by the spend rules of each budget.

State is in the database and on the API server only: a shift that begins anew reads both and goes
on. A queue that is to stay stopped is stopped by quota sync (stopPolicy); the check catches the
jobs that race with that, and brings them back when the cap allows it again.

Source: spec dispatch 6.
"""

from __future__ import annotations

from clusters.reconcile.budget_check.body import BudgetCheckBody
