DROP TRIGGER budget_line_insert_only ON budgets_budgetline;
DROP TRIGGER audit_entry_insert_only ON budgets_auditentry;
DROP FUNCTION budgets_refuse_change();
