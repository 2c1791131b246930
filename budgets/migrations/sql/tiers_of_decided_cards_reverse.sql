DROP TRIGGER rate_tier_fixed ON budgets_ratetier;
DROP FUNCTION budgets_guard_rate_tier();
