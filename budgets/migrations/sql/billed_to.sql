-- A statement: content is fixed once it is reviewed or its period is closed; a number is for ever.
CREATE OR REPLACE FUNCTION budgets_guard_statement() RETURNS trigger LANGUAGE plpgsql AS $$
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
