CREATE FUNCTION budgets_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never changed or deleted; add a new row', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE TRIGGER audit_entry_insert_only BEFORE UPDATE OR DELETE ON budgets_auditentry
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();

CREATE TRIGGER budget_line_insert_only BEFORE UPDATE OR DELETE ON budgets_budgetline
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
