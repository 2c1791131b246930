-- Rows are guarded one by one by other triggers, which TRUNCATE does not call.
CREATE FUNCTION budgets_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Of a test run, which empties its tables: the owner alone can say so, in its own session.
    IF current_setting('portal.empties_its_tables', true) = 'on' AND pg_has_role(
        current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE'
    ) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '% is never emptied', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'auditentry', 'budgetrevision', 'budgetline', 'usagerecord', 'accountusage',
        'workloadusage', 'billingterms', 'billingperiod', 'ratecard', 'rateprice', 'ratetier',
        'spotprice', 'exchangerate', 'statement', 'statementline', 'adjustment', 'correction',
        'numberseries', 'ledgerblock', 'seal', 'approval', 'proposal', 'installation'
    ] LOOP
        EXECUTE format('CREATE TRIGGER never_emptied BEFORE TRUNCATE ON budgets_%s
            FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_truncate()', name);
    END LOOP;
END
$$;
