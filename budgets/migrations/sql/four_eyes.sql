-- An approval is of two people, or of one while one person runs everything alone. (A CHECK holds
-- that the people are two; what it cannot ask is the installation.)
CREATE FUNCTION budgets_guard_approval() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.kind = 'one' AND NOT EXISTS (
        SELECT 1 FROM budgets_installation
        WHERE one_person_since IS NOT NULL AND one_person_until IS NULL
    ) THEN
        RAISE EXCEPTION 'two people approve what moves money'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER approval_of_two BEFORE INSERT ON budgets_approval
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_approval();
CREATE TRIGGER approval_insert_only BEFORE UPDATE OR DELETE ON budgets_approval
    FOR EACH ROW EXECUTE FUNCTION budgets_refuse_change();

-- What is proposed never changes; it is decided once.
CREATE FUNCTION budgets_guard_proposal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.state <> 'waiting'
        OR (NEW.deed, NEW.subject, NEW.parameters, NEW.seen, NEW.reason, NEW.proposed_by_id,
            NEW.proposed_at, NEW.expires_at)
            IS DISTINCT FROM
           (OLD.deed, OLD.subject, OLD.parameters, OLD.seen, OLD.reason, OLD.proposed_by_id,
            OLD.proposed_at, OLD.expires_at)
    THEN
        RAISE EXCEPTION 'a proposal is never changed; propose anew'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER proposal_fixed BEFORE UPDATE OR DELETE ON budgets_proposal
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_proposal();

-- One person who ended running everything alone never begins again.
CREATE FUNCTION budgets_guard_installation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.one_person_since IS NOT NULL AND (TG_OP = 'DELETE'
        OR NEW.one_person_since IS DISTINCT FROM OLD.one_person_since
        OR (OLD.one_person_until IS NOT NULL
            AND NEW.one_person_until IS DISTINCT FROM OLD.one_person_until))
    THEN
        RAISE EXCEPTION 'that one person runs everything alone is ended for good'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END
$$;

CREATE TRIGGER installation_one_person BEFORE UPDATE OR DELETE ON budgets_installation
    FOR EACH ROW EXECUTE FUNCTION budgets_guard_installation();
