-- A raw event never changes. It goes only when its Workload is marked, which the portal does when
-- it has made sure that nothing is worked out from it any more, and only from a time that is closed
-- for its account; of a namespace that is no workspace's, from a time of which a month is closed.
CREATE FUNCTION clusters_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a raw event never changes'
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;

-- Asked once per statement: events go by the thousand.
CREATE FUNCTION clusters_refuse_loss() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM old_rows event WHERE NOT EXISTS (
            SELECT 1 FROM clusters_workloadstate state
            JOIN clusters_cluster cluster ON cluster.id = state.cluster_id
            WHERE cluster.slug = event.cluster AND state.uid = event.uid
                AND state.events_retired_at IS NOT NULL
        ) OR event.observed_at >= COALESCE(
            (
                SELECT terms.closed_until FROM budgets_workspace workspace
                JOIN budgets_billingterms terms ON terms.account_id = workspace.account_id
                WHERE workspace.namespace = event.namespace
            ),
            (SELECT max(period."end") FROM budgets_billingperiod period
                WHERE period.closed_at IS NOT NULL),
            '-infinity'
        )
    ) THEN
        RAISE EXCEPTION 'a raw event goes only after its month is closed and its workload is marked'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER raw_event_fixed BEFORE UPDATE ON clusters_workloadevent
    FOR EACH ROW EXECUTE FUNCTION clusters_refuse_change();

CREATE TRIGGER raw_event_kept AFTER DELETE ON clusters_workloadevent
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION clusters_refuse_loss();
