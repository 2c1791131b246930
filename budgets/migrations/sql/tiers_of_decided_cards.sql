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

CREATE TRIGGER rate_tier_fixed BEFORE INSERT ON budgets_ratetier
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_rate_tier();
