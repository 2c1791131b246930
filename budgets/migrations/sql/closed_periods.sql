-- Hour facts: nothing of an account before its closed_until changes any more. Asked once per
-- statement, over all of its rows: the meter writes them by the thousand.
CREATE FUNCTION budgets_refuse_closed_usage() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_closed boolean := false;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        SELECT EXISTS (
            SELECT 1 FROM old_rows fact
            JOIN budgets_workspace workspace ON workspace.id = fact.workspace_id
            JOIN budgets_billingterms terms ON terms.account_id = workspace.account_id
            WHERE fact.start < terms.closed_until
        ) INTO is_closed;
    END IF;
    IF TG_OP <> 'DELETE' AND NOT is_closed THEN
        SELECT EXISTS (
            SELECT 1 FROM new_rows fact
            JOIN budgets_workspace workspace ON workspace.id = fact.workspace_id
            JOIN budgets_billingterms terms ON terms.account_id = workspace.account_id
            WHERE fact.start < terms.closed_until
        ) INTO is_closed;
    END IF;
    IF is_closed THEN
        RAISE EXCEPTION '% of a closed period never changes; record a correction', TG_TABLE_NAME
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION budgets_refuse_closed_account() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_closed boolean := false;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        SELECT EXISTS (
            SELECT 1 FROM old_rows fact
            JOIN budgets_billingterms terms ON terms.account_id = fact.account_id
            WHERE fact.start < terms.closed_until
        ) INTO is_closed;
    END IF;
    IF TG_OP <> 'DELETE' AND NOT is_closed THEN
        SELECT EXISTS (
            SELECT 1 FROM new_rows fact
            JOIN budgets_billingterms terms ON terms.account_id = fact.account_id
            WHERE fact.start < terms.closed_until
        ) INTO is_closed;
    END IF;
    IF is_closed THEN
        RAISE EXCEPTION '% of a closed period never changes; record a correction', TG_TABLE_NAME
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER usage_record_closed_insert AFTER INSERT ON budgets_usagerecord
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER usage_record_closed_update AFTER UPDATE ON budgets_usagerecord
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER usage_record_closed_delete AFTER DELETE ON budgets_usagerecord
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER workload_usage_closed_insert AFTER INSERT ON budgets_workloadusage
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER workload_usage_closed_update AFTER UPDATE ON budgets_workloadusage
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER workload_usage_closed_delete AFTER DELETE ON budgets_workloadusage
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_usage();
CREATE TRIGGER account_usage_closed_insert AFTER INSERT ON budgets_accountusage
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_account();
CREATE TRIGGER account_usage_closed_update AFTER UPDATE ON budgets_accountusage
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_account();
CREATE TRIGGER account_usage_closed_delete AFTER DELETE ON budgets_accountusage
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION budgets_refuse_closed_account();

-- A statement: content is fixed once it is reviewed or its period is closed; a number is for ever.
CREATE FUNCTION budgets_guard_statement() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_closed boolean;
BEGIN
    SELECT closed_at IS NOT NULL INTO is_closed FROM budgets_billingperiod WHERE id = OLD.period_id;
    IF TG_OP = 'DELETE' THEN
        IF OLD.state <> 'draft' OR is_closed THEN
            RAISE EXCEPTION 'a % statement is never deleted', OLD.state
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF (OLD.number <> '' AND NEW.number <> OLD.number)
        OR ((OLD.state <> 'draft' OR is_closed)
            AND (NEW.account_id, NEW.period_id, NEW.kind, NEW.currency, NEW.priced_in,
                 NEW.exchange_rate, NEW.exchange_day, NEW.payable, NEW.credits_id,
                 NEW.billed_to)
            IS DISTINCT FROM
                (OLD.account_id, OLD.period_id, OLD.kind, OLD.currency, OLD.priced_in,
                 OLD.exchange_rate, OLD.exchange_day, OLD.payable, OLD.credits_id,
                 OLD.billed_to)) THEN
        RAISE EXCEPTION 'the content of a % statement never changes', OLD.state
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
        ('draft', 'reviewed'), ('reviewed', 'issued'), ('issued', 'void'), ('draft', 'issued'),
        ('reviewed', 'draft')
    ) OR (OLD.state = 'draft' AND NEW.state = 'issued' AND NEW.kind <> 'credit_note') THEN
        RAISE EXCEPTION 'a statement does not go from % to %', OLD.state, NEW.state
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION budgets_guard_statement_line() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_open boolean;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'a statement line never changes; draw the statement up again'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    SELECT statement.state = 'draft' AND period.closed_at IS NULL INTO is_open
        FROM budgets_statement statement
        JOIN budgets_billingperiod period ON period.id = statement.period_id
        WHERE statement.id = COALESCE(NEW.statement_id, OLD.statement_id);
    IF NOT is_open THEN
        RAISE EXCEPTION 'the lines of this statement are fixed'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END
$$;

CREATE TRIGGER statement_fixed BEFORE UPDATE OR DELETE ON budgets_statement
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_statement();
CREATE TRIGGER statement_line_fixed BEFORE INSERT OR UPDATE OR DELETE ON budgets_statementline
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_statement_line();

-- A closed period stays closed, and no account's closing moves back.
CREATE FUNCTION budgets_guard_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'period % is closed', OLD.name
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END
$$;

CREATE FUNCTION budgets_guard_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_until IS NOT NULL AND (
        TG_OP = 'DELETE' OR NEW.closed_until IS NULL OR NEW.closed_until < OLD.closed_until
        OR NEW.zone <> OLD.zone OR NEW.account_id <> OLD.account_id
    ) THEN
        RAISE EXCEPTION 'an account with a closed period is not opened again'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END
$$;

CREATE TRIGGER billing_period_closed BEFORE UPDATE OR DELETE ON budgets_billingperiod
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_period();
CREATE TRIGGER billing_terms_closed BEFORE UPDATE OR DELETE ON budgets_billingterms
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_terms();

-- Prices: a card's content never changes; it is decided once.
CREATE FUNCTION budgets_guard_rate_card() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.state <> 'proposed'
        OR (NEW.account_id, NEW.name, NEW.currency, NEW.floor_hours, NEW.rounding, NEW.author_id)
            IS DISTINCT FROM
            (OLD.account_id, OLD.name, OLD.currency, OLD.floor_hours, OLD.rounding, OLD.author_id)
    THEN
        RAISE EXCEPTION 'a rate card is never changed; propose a new one'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION budgets_guard_rate_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT state FROM budgets_ratecard WHERE id = NEW.card_id) <> 'proposed' THEN
        RAISE EXCEPTION 'a decided rate card takes no more prices; propose a new one'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

-- A volume step is a price: a decided rate card takes no more of them.
CREATE FUNCTION budgets_guard_rate_tier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT card.state FROM budgets_ratecard card JOIN budgets_rateprice price
        ON price.card_id = card.id WHERE price.id = NEW.price_row_id) <> 'proposed' THEN
        RAISE EXCEPTION 'a decided rate card takes no more prices; propose a new one'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION budgets_guard_adjustment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.state <> 'proposed'
        OR (NEW.account_id, NEW.workspace_id, NEW.period_id, NEW.amount, NEW.currency, NEW.reason,
            NEW.proposed_by_id, NEW.corrects_id)
            IS DISTINCT FROM
           (OLD.account_id, OLD.workspace_id, OLD.period_id, OLD.amount, OLD.currency, OLD.reason,
            OLD.proposed_by_id, OLD.corrects_id)
    THEN
        RAISE EXCEPTION 'a decided adjustment is never changed; propose a further one'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER rate_card_fixed BEFORE UPDATE OR DELETE ON budgets_ratecard
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_rate_card();
CREATE TRIGGER rate_price_fixed BEFORE INSERT ON budgets_rateprice
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_rate_price();
CREATE TRIGGER rate_tier_fixed BEFORE INSERT ON budgets_ratetier
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_rate_tier();
CREATE TRIGGER adjustment_fixed BEFORE UPDATE OR DELETE ON budgets_adjustment
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_adjustment();

CREATE TRIGGER rate_price_insert_only BEFORE UPDATE OR DELETE ON budgets_rateprice
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER rate_tier_insert_only BEFORE UPDATE OR DELETE ON budgets_ratetier
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER spot_price_insert_only BEFORE UPDATE OR DELETE ON budgets_spotprice
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER exchange_rate_insert_only BEFORE UPDATE OR DELETE ON budgets_exchangerate
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER correction_insert_only BEFORE UPDATE OR DELETE ON budgets_correction
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER ledger_block_insert_only BEFORE UPDATE OR DELETE ON budgets_ledgerblock
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
CREATE TRIGGER seal_insert_only BEFORE UPDATE OR DELETE ON budgets_seal
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();
