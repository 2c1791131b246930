CREATE TRIGGER closed_usage_insert BEFORE INSERT ON budgets_usagerecord
WHEN NEW.start < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = NEW.workspace_id)
BEGIN SELECT RAISE(ABORT, 'a usage record of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_usage_update BEFORE UPDATE ON budgets_usagerecord
WHEN MIN(OLD.start, NEW.start) < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = OLD.workspace_id)
BEGIN SELECT RAISE(ABORT, 'a usage record of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_usage_delete BEFORE DELETE ON budgets_usagerecord
WHEN OLD.start < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = OLD.workspace_id)
BEGIN SELECT RAISE(ABORT, 'a usage record of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_workload_insert BEFORE INSERT ON budgets_workloadusage
WHEN NEW.start < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = NEW.workspace_id)
BEGIN SELECT RAISE(ABORT, 'workload usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_workload_update BEFORE UPDATE ON budgets_workloadusage
WHEN MIN(OLD.start, NEW.start) < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = OLD.workspace_id)
BEGIN SELECT RAISE(ABORT, 'workload usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_workload_delete BEFORE DELETE ON budgets_workloadusage
WHEN OLD.start < (SELECT terms.closed_until FROM budgets_billingterms terms
    JOIN budgets_workspace workspace ON workspace.account_id = terms.account_id
    WHERE workspace.id = OLD.workspace_id)
BEGIN SELECT RAISE(ABORT, 'workload usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_account_insert BEFORE INSERT ON budgets_accountusage
WHEN NEW.start < (SELECT closed_until FROM budgets_billingterms WHERE account_id = NEW.account_id)
BEGIN SELECT RAISE(ABORT, 'account usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_account_update BEFORE UPDATE ON budgets_accountusage
WHEN MIN(OLD.start, NEW.start)
    < (SELECT closed_until FROM budgets_billingterms WHERE account_id = OLD.account_id)
BEGIN SELECT RAISE(ABORT, 'account usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_account_delete BEFORE DELETE ON budgets_accountusage
WHEN OLD.start < (SELECT closed_until FROM budgets_billingterms WHERE account_id = OLD.account_id)
BEGIN SELECT RAISE(ABORT, 'account usage of a closed period never changes; record a correction'); END
-- next
CREATE TRIGGER closed_statement_update BEFORE UPDATE ON budgets_statement
WHEN (OLD.number <> '' AND NEW.number <> OLD.number)
    OR ((OLD.state <> 'draft'
            OR EXISTS (SELECT 1 FROM budgets_billingperiod
                WHERE id = OLD.period_id AND closed_at IS NOT NULL))
        AND (NEW.account_id IS NOT OLD.account_id OR NEW.period_id <> OLD.period_id
            OR NEW.kind <> OLD.kind OR NEW.currency <> OLD.currency
            OR NEW.priced_in <> OLD.priced_in OR NEW.exchange_rate IS NOT OLD.exchange_rate
            OR NEW.exchange_day IS NOT OLD.exchange_day OR NEW.payable <> OLD.payable
            OR NEW.credits_id IS NOT OLD.credits_id OR NEW.billed_to <> OLD.billed_to))
BEGIN SELECT RAISE(ABORT, 'the content of this statement never changes'); END
-- next
CREATE TRIGGER closed_statement_state BEFORE UPDATE ON budgets_statement
WHEN NEW.state <> OLD.state
    AND OLD.state || ' ' || NEW.state NOT IN (
        'draft reviewed', 'reviewed issued', 'issued void', 'reviewed draft')
    AND NOT (OLD.state = 'draft' AND NEW.state = 'issued' AND NEW.kind = 'credit_note')
BEGIN SELECT RAISE(ABORT, 'a statement does not change its state this way'); END
-- next
CREATE TRIGGER closed_statement_delete BEFORE DELETE ON budgets_statement
WHEN OLD.state <> 'draft'
    OR EXISTS (SELECT 1 FROM budgets_billingperiod
        WHERE id = OLD.period_id AND closed_at IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'this statement is never deleted'); END
-- next
CREATE TRIGGER closed_line_insert BEFORE INSERT ON budgets_statementline
WHEN NOT EXISTS (SELECT 1 FROM budgets_statement statement
    JOIN budgets_billingperiod period ON period.id = statement.period_id
    WHERE statement.id = NEW.statement_id AND statement.state = 'draft'
        AND period.closed_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'the lines of this statement are fixed'); END
-- next
CREATE TRIGGER closed_line_update BEFORE UPDATE ON budgets_statementline
BEGIN SELECT RAISE(ABORT, 'a statement line never changes; draw the statement up again'); END
-- next
CREATE TRIGGER closed_line_delete BEFORE DELETE ON budgets_statementline
WHEN EXISTS (SELECT 1 FROM budgets_statement statement
    JOIN budgets_billingperiod period ON period.id = statement.period_id
    WHERE statement.id = OLD.statement_id
        AND (statement.state <> 'draft' OR period.closed_at IS NOT NULL))
BEGIN SELECT RAISE(ABORT, 'the lines of this statement are fixed'); END
-- next
CREATE TRIGGER closed_period_update BEFORE UPDATE ON budgets_billingperiod
WHEN OLD.closed_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'this period is closed'); END
-- next
CREATE TRIGGER closed_period_delete BEFORE DELETE ON budgets_billingperiod
WHEN OLD.closed_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'this period is closed'); END
-- next
CREATE TRIGGER closed_terms_update BEFORE UPDATE ON budgets_billingterms
WHEN OLD.closed_until IS NOT NULL
    AND (NEW.closed_until IS NULL OR NEW.closed_until < OLD.closed_until
        OR NEW.zone <> OLD.zone OR NEW.account_id <> OLD.account_id)
BEGIN SELECT RAISE(ABORT, 'an account with a closed period is not opened again'); END
-- next
CREATE TRIGGER closed_terms_delete BEFORE DELETE ON budgets_billingterms
WHEN OLD.closed_until IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an account with a closed period is not opened again'); END
-- next
CREATE TRIGGER closed_block_update BEFORE UPDATE ON budgets_ledgerblock
BEGIN SELECT RAISE(ABORT, 'a block of the ledger never changes'); END
-- next
CREATE TRIGGER closed_block_delete BEFORE DELETE ON budgets_ledgerblock
BEGIN SELECT RAISE(ABORT, 'a block of the ledger never changes'); END
-- next
CREATE TRIGGER closed_correction_update BEFORE UPDATE ON budgets_correction
BEGIN SELECT RAISE(ABORT, 'a correction never changes; a further one is recorded'); END
-- next
CREATE TRIGGER closed_correction_delete BEFORE DELETE ON budgets_correction
BEGIN SELECT RAISE(ABORT, 'a correction never changes; a further one is recorded'); END
-- next
CREATE TRIGGER closed_seal_update BEFORE UPDATE ON budgets_seal
BEGIN SELECT RAISE(ABORT, 'a seal of the ledger never changes'); END
-- next
CREATE TRIGGER closed_seal_delete BEFORE DELETE ON budgets_seal
BEGIN SELECT RAISE(ABORT, 'a seal of the ledger never changes'); END
-- next
CREATE TRIGGER closed_approval_insert BEFORE INSERT ON budgets_approval
WHEN NEW.kind = 'one' AND NOT EXISTS (
    SELECT 1 FROM budgets_installation
    WHERE one_person_since IS NOT NULL AND one_person_until IS NULL)
BEGIN SELECT RAISE(ABORT, 'two people approve what moves money'); END
-- next
CREATE TRIGGER closed_approval_update BEFORE UPDATE ON budgets_approval
BEGIN SELECT RAISE(ABORT, 'an approval never changes'); END
-- next
CREATE TRIGGER closed_approval_delete BEFORE DELETE ON budgets_approval
BEGIN SELECT RAISE(ABORT, 'an approval never changes'); END
-- next
CREATE TRIGGER closed_proposal_update BEFORE UPDATE ON budgets_proposal
WHEN OLD.state <> 'waiting' OR NEW.deed <> OLD.deed OR NEW.subject <> OLD.subject
    OR NEW.parameters <> OLD.parameters OR NEW.seen <> OLD.seen OR NEW.reason <> OLD.reason
    OR NEW.proposed_by_id <> OLD.proposed_by_id OR NEW.proposed_at <> OLD.proposed_at
    OR NEW.expires_at <> OLD.expires_at
BEGIN SELECT RAISE(ABORT, 'a proposal is never changed; propose anew'); END
-- next
CREATE TRIGGER closed_proposal_delete BEFORE DELETE ON budgets_proposal
BEGIN SELECT RAISE(ABORT, 'a proposal is never changed; propose anew'); END
-- next
CREATE TRIGGER closed_installation_update BEFORE UPDATE ON budgets_installation
WHEN OLD.one_person_since IS NOT NULL AND (
    NEW.one_person_since IS NOT OLD.one_person_since
    OR (OLD.one_person_until IS NOT NULL AND NEW.one_person_until IS NOT OLD.one_person_until))
BEGIN SELECT RAISE(ABORT, 'that one person runs everything alone is ended for good'); END
-- next
CREATE TRIGGER closed_installation_delete BEFORE DELETE ON budgets_installation
WHEN OLD.one_person_since IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'that one person runs everything alone is ended for good'); END
