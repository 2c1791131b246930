DROP TRIGGER rate_tier_insert_only ON budgets_ratetier;
DROP TRIGGER seal_insert_only ON budgets_seal;
DROP FUNCTION budgets_refuse_truncate() CASCADE;
