-- Each function goes with the triggers that call it.
DROP FUNCTION
    budgets_refuse_change(),
    budgets_refuse_closed_usage(),
    budgets_refuse_closed_account(),
    budgets_guard_statement(),
    budgets_guard_statement_line(),
    budgets_guard_period(),
    budgets_guard_terms(),
    budgets_guard_rate_card(),
    budgets_guard_rate_price(),
    budgets_guard_rate_tier(),
    budgets_guard_adjustment(),
    budgets_guard_approval(),
    budgets_guard_proposal(),
    budgets_guard_installation(),
    budgets_refuse_truncate()
CASCADE;
